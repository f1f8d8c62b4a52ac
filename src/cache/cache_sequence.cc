// One stream in a pool: which pages it holds, and which it takes, shares, copies and gives back.
#include <algorithm>
#include <utility>

#include "cache/page_pool_state.h"
#include "cache/sequence_plan.h"
#include "cache/stream_layout.h"
#include "core/checked.h"
#include "core/format.h"
#include "tessera/page_pool.h"

namespace tessera {
namespace {

using Kind = CachePolicy::Kind;

constexpr std::int64_t kNoIds = -1;  // of ids_begin_: the pages to come cannot be found again

}  // namespace

std::string to_string(const CachePolicy& policy) {
  switch (policy.kind) {
    case Kind::full:
      return "full";
    case Kind::window:
      return fmt::format("window({})", policy.window);
    case Kind::sinks:
      return fmt::format("sinks({}, {})", policy.n_sink, policy.window);
  }
  return "unknown";
}

CacheSequence::CacheSequence(PagePool& pool, const CachePolicy& policy, std::int64_t max_tokens,
                             std::int64_t max_step)
    : pool_(&pool),
      policy_(policy),
      max_tokens_(max_tokens),
      max_step_(max_step),
      layout_(
          std::make_unique<StreamLayout>(policy, max_tokens, max_step, pool.options().page_size)) {
  const bool indexed = pool.options().prefix_cache;
  ids_begin_ = indexed ? 0 : kNoIds;
  // No step allocates, unless a pool is smaller than what one sequence may hold.
  const std::int64_t most = std::min(layout_->max_pages(), pool.options().pages);
  const std::int64_t sinks = std::min(most, layout_->sink_pages_for(layout_->n_sink()));
  sinks_.reserve(static_cast<std::size_t>(sinks));
  line_.reserve(static_cast<std::size_t>(most));
  if (!indexed) return;
  chain_.reserve(static_cast<std::size_t>(most));
  ids_.reserve(static_cast<std::size_t>(max_step + 2 * pool.options().page_size));
}

CacheSequence::~CacheSequence() { release_all(); }

CacheSequence::CacheSequence(CacheSequence&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      policy_(other.policy_),
      max_tokens_(other.max_tokens_),
      max_step_(other.max_step_),
      layout_(std::move(other.layout_)),
      seen_(other.seen_),
      step_begin_(other.step_begin_),
      sinks_(std::move(other.sinks_)),
      line_(std::move(other.line_)),
      line_begin_(other.line_begin_),
      chain_(std::move(other.chain_)),
      ids_(std::move(other.ids_)),
      ids_begin_(other.ids_begin_) {}

CacheSequence& CacheSequence::operator=(CacheSequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(policy_, other.policy_);
  std::swap(max_tokens_, other.max_tokens_);
  std::swap(max_step_, other.max_step_);
  layout_.swap(other.layout_);
  std::swap(seen_, other.seen_);
  std::swap(step_begin_, other.step_begin_);
  sinks_.swap(other.sinks_);
  line_.swap(other.line_);
  std::swap(line_begin_, other.line_begin_);
  chain_.swap(other.chain_);
  ids_.swap(other.ids_);
  std::swap(ids_begin_, other.ids_begin_);
  if (this != &other) other.release_all();
  return *this;
}

// The last page first: the beginning of a stream, which more streams share, is the last to be given
// up.
void CacheSequence::release_all() noexcept {
  if (pool_ == nullptr) return;
  for (std::vector<std::int32_t>* pages : {&line_, &sinks_}) {
    for (; !pages->empty(); pages->pop_back()) pool_->state_->drop(pages->back());
  }
}

CacheSequence CacheSequence::fork() const {
  CacheSequence other(*pool_, policy_, max_tokens_, max_step_);
  other.seen_ = seen_;
  other.step_begin_ = step_begin_;
  other.sinks_ = sinks_;
  other.line_ = line_;
  other.line_begin_ = line_begin_;
  other.chain_ = chain_;
  other.ids_ = ids_;
  other.ids_begin_ = ids_begin_;
  for (const std::vector<std::int32_t>* pages : {&sinks_, &line_}) {
    for (const std::int32_t page : *pages) pool_->share(page);
  }
  return other;
}

std::int64_t CacheSequence::find_prefix(std::span<const std::int32_t> ids) {
  if (seen_ != 0) {
    fail(ErrorCode::invalid_argument,
         "cache: a prefix was asked for after {} tokens; only an empty sequence can begin with one",
         seen_);
  }
  PagePool::State& pool = *pool_->state_;
  if (!pool.index) return 0;
  const std::int64_t most =
      std::min(std::ssize(ids) - 1, layout_->last_position() + 1);  // of the tokens to find
  std::uint64_t parent = PrefixIndex::kRoot;
  for (std::int64_t i = 0; layout_->page_end(i) <= most; ++i) {
    const std::int64_t begin = layout_->page_begin(i), end = layout_->page_end(i);
    const auto tokens =
        ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const std::int32_t page = pool.index->find({policy_, parent, tokens});
    if (page < 0) break;
    pool_->share(page);
    (begin < layout_->n_sink() ? sinks_ : line_).push_back(page);
    parent = pool.index->number(page);
    chain_.push_back(parent);
    seen_ = end;
  }
  // The page of the sinks is whole with a few tokens. Alone it saves nothing, and what another
  // prompt has left there is the same within rounding only.
  if (seen_ < layout_->page_size()) {
    release_all();
    chain_.clear();
    seen_ = 0;
  }
  step_begin_ = ids_begin_ = seen_;
  ++pool.stats.lookups;
  pool.stats.asked_tokens += std::ssize(ids);
  pool.stats.hit_tokens += seen_;
  return seen_;
}

std::int64_t CacheSequence::kept() const {
  return policy_.kind == Kind::full ? seen_ : std::min(seen_, layout_->last_position());
}

std::int64_t CacheSequence::pages() const { return std::ssize(sinks_) + std::ssize(line_); }

bool CacheSequence::has_room() const { return policy_.kind != Kind::full || seen_ < max_tokens_; }

std::int64_t CacheSequence::step_size(std::int64_t wanted) const {
  if (wanted < 0) fail(ErrorCode::invalid_argument, "cache: {} tokens were asked for", wanted);
  const std::int64_t most = std::min(wanted, max_step_);
  if (policy_.kind == Kind::full && wanted > max_tokens_ - seen_) {
    fail(ErrorCode::invalid_argument,
         "the cache holds at most {} tokens: {} are in it, and there is no room for {} more; "
         "a cache with attention sinks or a window takes streams of any length",
         max_tokens_, seen_, wanted);
  }
  if (policy_.kind != Kind::sinks || !layout_->fits(seen_)) return most;
  return std::min(most, layout_->last_position() + 1 - seen_);
}

std::int64_t CacheSequence::max_pages(const CachePolicy& policy, std::int64_t max_tokens,
                                      std::int64_t max_step, std::int64_t page_size) {
  return StreamLayout(policy, max_tokens, max_step, page_size).max_pages();
}

// ---- a step -------------------------------------------------------------------------------------

std::int32_t CacheSequence::page_of(std::int64_t token) const {
  if (token < layout_->n_sink()) {
    return sinks_[static_cast<std::size_t>(token / layout_->page_size())];
  }
  return line_[static_cast<std::size_t>(layout_->line_page(token) - line_begin_)];
}

// Pages leave when all their tokens have. The newest of them stays until the line needs a page, and
// is that page then, unless somebody else holds it or may find it. So a stream that takes one token
// at a time turns its own pages round, which a GPU does by itself (core/step_row.h).
CacheSequence::Plan CacheSequence::plan_leaving(std::int64_t tokens) const {
  const std::int64_t first = layout_->line_page(layout_->oldest(seen_));
  const std::int64_t end = seen_ + tokens, line_end = line_begin_ + std::ssize(line_);
  const bool grows = end > layout_->n_sink() && layout_->line_page(end - 1) >= line_end;
  const std::int64_t gone = std::clamp<std::int64_t>(first - line_begin_, 0, std::ssize(line_));
  Plan plan;
  plan.leaving = grows ? gone : std::max<std::int64_t>(0, gone - 1);
  // A line without pages begins anew.
  plan.line_begin = plan.leaving == std::ssize(line_) ? first : line_begin_ + plan.leaving;
  if (grows && gone > 0) {
    const std::int32_t page = line_[static_cast<std::size_t>(gone - 1)];
    plan.recycles = pool_->holders(page) == 1 && !pool_->state_->is_found(page);
  }
  return plan;
}

void CacheSequence::begin_plan(const Plan& plan) {
  for (std::int64_t i = 0; i < plan.released(); ++i) {
    pool_->release(line_[static_cast<std::size_t>(i)]);
  }
}

void CacheSequence::plan_pages(std::int64_t tokens, Plan& plan) const {
  const std::int64_t end = seen_ + tokens;
  plan.new_sinks = std::max<std::int64_t>(0, layout_->sink_pages_for(end) - std::ssize(sinks_));
  if (end > layout_->n_sink()) {
    const std::int64_t line_end = plan.line_begin + std::ssize(line_) - plan.leaving;
    plan.new_line = std::max<std::int64_t>(0, layout_->line_page(end - 1) + 1 - line_end);
  }
  plan_page_to_write(plan);
}

void CacheSequence::plan_page_to_write(Plan& plan) const {
  std::int32_t page = -1;
  if (seen_ < layout_->n_sink()) {
    const std::int64_t at = seen_ / layout_->page_size();
    if (at >= std::ssize(sinks_)) return;
    plan.sink_written = at;
    page = sinks_[static_cast<std::size_t>(at)];
  } else {
    const std::int64_t at = layout_->line_page(seen_) - plan.line_begin;
    if (plan.leaving + at >= std::ssize(line_)) return;
    plan.line_written = at;
    page = line_[static_cast<std::size_t>(plan.leaving + at)];
  }
  if (pool_->holders(page) > 1) plan.copied = page;
  plan.forgets = plan.copied < 0 && pool_->state_->is_found(page);
}

void CacheSequence::undo_plan(const Plan& plan) {
  if (plan.copied >= 0) pool_->share(plan.copied);
  for (std::int64_t i = plan.released() - 1; i >= 0; --i) {
    pool_->share(line_[static_cast<std::size_t>(i)]);
  }
}

std::int64_t CacheSequence::pages_for(std::int64_t tokens) const {
  Plan plan = plan_leaving(tokens);
  plan_pages(tokens, plan);
  std::int64_t pages = plan.pages();
  for (std::int64_t i = 0; i < plan.released(); ++i) {
    if (pool_->holders(line_[static_cast<std::size_t>(i)]) == 1) --pages;
  }
  return std::max<std::int64_t>(0, pages);
}

void CacheSequence::take_pages(Context& ctx, const Plan& plan) {
  const std::int32_t recycled =
      plan.recycles ? line_[static_cast<std::size_t>(plan.leaving - 1)] : -1;
  line_.erase(line_.begin(), line_.begin() + plan.leaving);
  line_begin_ = plan.line_begin;
  if (plan.copied >= 0 || plan.forgets) {
    std::int32_t& page = plan.sink_written >= 0
                             ? sinks_[static_cast<std::size_t>(plan.sink_written)]
                             : line_[static_cast<std::size_t>(plan.line_written)];
    if (plan.forgets) pool_->state_->forget(page);
    if (plan.copied >= 0) {
      page = pool_->take();
      pool_->copy_page(ctx, plan.copied, page);
    }
  }
  for (std::int64_t i = 0; i < plan.new_sinks; ++i) sinks_.push_back(pool_->take());
  for (std::int64_t i = 0; i < plan.new_line; ++i) {
    line_.push_back(i == 0 && plan.recycles ? recycled : pool_->take());
  }
}

// ---- tokens -------------------------------------------------------------------------------------

void CacheSequence::add_tokens(std::span<const std::int32_t> ids) {
  step_begin_ = seen_;
  seen_ += std::ssize(ids);
  if (ids_begin_ == kNoIds) return;
  // A page whose last token sees less than all before it depends on what had left.
  const std::int64_t next = std::ssize(chain_);
  if (!layout_->fits(layout_->page_end(next) - 1)) {
    ids_.clear();
    ids_begin_ = kNoIds;
    return;
  }
  const std::int64_t done = layout_->page_begin(next) - ids_begin_;
  ids_.erase(ids_.begin(), ids_.begin() + done);
  ids_begin_ += done;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

void CacheSequence::set_id(std::int64_t token, std::int32_t id) {
  if (ids_begin_ == kNoIds || token < ids_begin_ || token >= seen_) return;  // nobody asks for it
  ids_[static_cast<std::size_t>(token - ids_begin_)] = id;
}

void CacheSequence::index_whole_pages() {
  if (ids_begin_ == kNoIds) return;
  PrefixIndex& index = *pool_->state_->index;
  for (std::int64_t i = std::ssize(chain_);; ++i) {
    const std::int64_t begin = layout_->page_begin(i), end = layout_->page_end(i);
    if (end > seen_ || !layout_->fits(end - 1)) return;
    const bool held = begin < layout_->n_sink() || layout_->line_page(begin) >= line_begin_;
    if (!held) return;
    const auto tokens = std::span<const std::int32_t>(ids_).subspan(
        static_cast<std::size_t>(begin - ids_begin_), static_cast<std::size_t>(end - begin));
    const std::uint64_t parent = chain_.empty() ? PrefixIndex::kRoot : chain_.back();
    chain_.push_back(index.add({policy_, parent, tokens}, page_of(begin)));
  }
}

void CacheSequence::clear() {
  release_all();
  seen_ = step_begin_ = line_begin_ = 0;
  chain_.clear();
  ids_.clear();
  ids_begin_ = pool_->options().prefix_cache ? 0 : kNoIds;
}

void CacheSequence::truncate(std::int64_t seen) {
  // Without a window no page has left. The index needs the ids of the pages to come.
  const bool any = policy_.kind == Kind::full && ids_begin_ == kNoIds;
  const std::int64_t least = any ? 0 : step_begin_;
  if (seen < least || seen > seen_) {
    fail(ErrorCode::invalid_argument,
         "cache: {} tokens were asked to remain; the sequence can be taken back to {}..{}", seen,
         least, seen_);
  }
  step_begin_ = std::min(step_begin_, seen);
  seen_ = seen;
  const std::int64_t n_sink = layout_->n_sink();
  const std::int64_t line_end = seen > n_sink ? layout_->line_page(seen - 1) + 1 : line_begin_;
  while (!line_.empty() && line_begin_ + std::ssize(line_) > line_end) {
    pool_->release(line_.back());
    line_.pop_back();
  }
  while (std::ssize(sinks_) > layout_->sink_pages_for(seen)) {
    pool_->release(sinks_.back());
    sinks_.pop_back();
  }
  while (!chain_.empty() && layout_->page_end(std::ssize(chain_) - 1) > seen) chain_.pop_back();
  if (ids_begin_ != kNoIds) ids_.resize(static_cast<std::size_t>(seen - ids_begin_));
}

void CacheSequence::skip(std::int64_t tokens) {
  seen_ = step_begin_ = checked_add(seen_, tokens);
  ids_.clear();
  ids_begin_ = kNoIds;
}

}  // namespace tessera
