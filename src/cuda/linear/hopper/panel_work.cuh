// How the blocks of panels.cuh divide their work: evenly, to within one pair of slabs.
//
// A tile is the part of the output that one block computes at a time: a panel of features by a
// block of tokens. It takes all pairs of slabs along K. If there are many tiles, most are dealt out
// whole, one block after the other. The rest, fewer than two per block, form one long row of pairs,
// and each block takes a run of equal length:
//
//   tile 0                tile 1                tile 2
//   |p0 p1 p2 .... p31|p0 p1 .......... p31|p0 ............ p31|
//   [ run 0        ][ run 1        ][ run 2        ][ run 3    ]
//
// A run that starts inside a tile begins with a part of that tile, whose sums go to memory. The run
// with the tile's first pair gets to the tile last, long after the other parts were written. It
// adds them in order, the same every time, and runs the epilogue.
//
// Runs are numbered in reverse order of blocks, so a block waits only for blocks that have started
// before it.
//
// If there are so few tiles that each can have a cluster of blocks, the cluster divides the tile's
// pairs and exchanges sums (panel_split.cuh).
#pragma once

namespace tessera::cuda {

struct PanelWork {
  int pairs = 0;         // of a tile
  int token_blocks = 0;  // tiles of a panel
  int whole_tiles = 0;   // dealt out whole, first
  // For the other tiles: pairs of a run; the first runs have one more.
  int run_pairs = 0, longer_runs = 0;
  // If not zero: the blocks of a cluster, which has one tile, and the most groups of eight tokens
  // that a block writes.
  int split = 0, split_groups = 0;
};

// A block's share of a tile: pairs [first, end).
struct Segment {
  int tile = 0, first = 0, end = 0;
};

class Segments {
 public:
  // The segments of block number `block` of `blocks`.
  __device__ Segments(const PanelWork& work, int block, int blocks)
      : work_(work),
        blocks_(blocks),
        run_(blocks - 1 - block),
        whole_(block),
        at_(begin_of(run_)),
        end_(begin_of(run_ + 1)) {
    if (work.split == 0) return;
    const int tile = block / work.split;
    const int rank = block - tile * work.split;
    at_ = tile * work.pairs + work.pairs * rank / work.split;
    end_ = tile * work.pairs + work.pairs * (rank + 1) / work.split;
  }
  __device__ explicit Segments(const PanelWork& work)
      : Segments(work, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)) {}

  // False if there is none left.
  __device__ bool next(Segment& segment) {
    if (whole_ < work_.whole_tiles) {
      segment = {.tile = whole_, .first = 0, .end = work_.pairs};
      whole_ += blocks_;
      return true;
    }
    if (at_ >= end_) return false;
    const int tile = at_ / work_.pairs, first = at_ - tile * work_.pairs;
    const int length = min(end_ - at_, work_.pairs - first);
    segment = {.tile = work_.whole_tiles + tile, .first = first, .end = first + length};
    at_ += length;
    return true;
  }

  __device__ int run() const { return run_; }
  // Whether a run has a part of a tile. The runs after the one with the tile's first pair do, up to
  // the tile's end.
  __device__ bool reaches(int run, int tile) const {
    return run < blocks_ && begin_of(run) < (tile - work_.whole_tiles + 1) * work_.pairs;
  }

 private:
  __device__ int begin_of(int run) const {
    return run * work_.run_pairs + min(run, work_.longer_runs);
  }

  const PanelWork& work_;
  int blocks_;
  int run_;
  int whole_;     // the next one
  int at_, end_;  // of the shared pairs
};

}  // namespace tessera::cuda
