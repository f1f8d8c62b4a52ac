// A model that several processes compute together. Rank 0 leads: it has the Engine, the scheduler,
// the sampler and the user, and uses the model like any other. Before each pass it sends the step
// to the other ranks: a few kilobytes that say which rows there are and where their keys go. The
// others follow: each runs the same step over its own part of the weights and of the cache.
//
//   rank 0   Engine --> LeadingModel::forward --send step--> part's forward --+
//   rank r              follow()             <--receive----- part's forward --+ all_reduce, ...
//
// So all ranks do the same by construction, however clocks and clients influence the schedule.
#pragma once

#include <memory>

#include "parallel/control.h"
#include "tessera/communicator.h"
#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::model {

// Rank 0: wraps its part. Caches and pools that it makes have counterparts on the other ranks,
// which end with them. A pass that fails half way ends all ranks: the others would wait for ever.
std::unique_ptr<Model> lead(std::unique_ptr<Model> part, Communicator& ranks,
                            parallel::ControlChannel& channel);
// Rank 0 calls this when it is done: every follow() returns.
void end_following(parallel::ControlChannel& channel);

// Every other rank: runs the steps of rank 0 until it is done.
void follow(Context& ctx, const Model& part, Communicator& ranks,
            parallel::ControlChannel& channel);

}  // namespace tessera::model
