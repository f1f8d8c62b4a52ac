// The tile loop of panels.cuh and wide.cuh: a warp visits the tiles that its block has a share of
// (panel_work.cuh).
#pragma once

#include "cuda/linear/hopper/panel_epilogue.cuh"
#include "cuda/linear/hopper/panel_work.cuh"

namespace tessera::cuda {

// Calls for each segment: start(segment), multiply(first pair, end, sums) once or more, and
// epilogue(segment, sums) if this block ends the tile; the other blocks' parts have been added by
// then. In clusters that share a tile (PanelWork::split), all blocks end it.
template <int kTokens, int kWarps, typename Start, typename Multiply, typename Epilogue>
__device__ inline void tile_loop(const PanelWork& work, const PanelParts& parts, Segments segments,
                                 Start&& start, Multiply&& multiply, Epilogue&& epilogue) {
  Segment segment;
  bool unannounced = false;
  while (segments.next(segment)) {
    start(segment);
    float sums[kTokens / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    for (int pair = segment.first; pair < segment.end;) {
      // A part's sums are being written: after one more pair they have arrived.
      const int end = unannounced ? pair + 1 : segment.end;
      multiply(pair, end, sums);
      if (unannounced) announce_part<kWarps>(parts, segments.run());
      unannounced = false;
      pair = end;
    }
    if (work.split == 0 && segment.first > 0) {
      put_part<kTokens, kWarps>(parts, segments.run(), sums);
      unannounced = true;
      continue;
    }
    if (work.split == 0 && segment.end < work.pairs) {
      const int first = segments.run() + 1;
      int end = first + 1;
      while (segments.reaches(end, segment.tile)) ++end;
      wait_for_parts<kWarps>(parts, first, end - first);
      for (int r = first; r < end; ++r) add_part<kTokens, kWarps>(parts, r, sums);
    }
    epilogue(segment, sums);
  }
  if (unannounced) announce_part<kWarps>(parts, segments.run());
}

}  // namespace tessera::cuda
