#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/philox.h"

namespace tessera::reference {
namespace {

// The place of a query or a key: the first two indices of its array.
struct Place {
  std::int64_t batch, row;
};

struct Sequence {
  std::int64_t index;
  std::vector<Place> queries, keys;
};

std::vector<Place> consecutive(std::int64_t batch, std::int64_t begin, std::int64_t end) {
  std::vector<Place> places;
  for (std::int64_t row = begin; row < end; ++row) places.push_back({batch, row});
  return places;
}

std::vector<Place> in_pages(const AttentionInputs& in, std::int64_t sequence) {
  const std::int64_t page_size = in.k.size(1);
  std::vector<Place> places;
  for (std::int64_t j = 0; j < static_cast<std::int64_t>(in.lengths.at(sequence)); ++j) {
    const bool behind_hole = !in.holes.empty() && j >= in.holes.at(sequence, 0);
    const std::int64_t slot =
        behind_hole ? j + static_cast<std::int64_t>(in.holes.at(sequence, 1)) : j;
    const double page = in.page_table.at(sequence, slot / page_size);
    places.push_back({static_cast<std::int64_t>(page), slot % page_size});
  }
  return places;
}

std::vector<Sequence> sequences(const AttentionInputs& in) {
  const bool ragged = !in.q_offsets.empty();
  const std::int64_t count = ragged ? std::ssize(in.q_offsets) - 1 : in.q.size(0);
  std::vector<Sequence> result;
  for (std::int64_t b = 0; b < count; ++b) {
    result.push_back({b,
                      ragged ? consecutive(0, in.q_offsets[b], in.q_offsets[b + 1])
                             : consecutive(b, 0, in.q.size(1)),
                      !in.page_table.shape.empty() ? in_pages(in, b)
                      : ragged ? consecutive(0, in.k_offsets[b], in.k_offsets[b + 1])
                               : consecutive(b, 0, in.k.size(1))});
  }
  return result;
}

std::vector<double> vector_at(const Array& array, Place place, std::int64_t head) {
  const double* row = array.row(place.batch, place.row, head);
  return {row, row + array.size(3)};
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// to += weight * from
void add(double* to, double weight, const std::vector<double>& from) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] += weight * from[i];
}

// A key, rotated by its position if rope_on_read asks for it.
std::vector<double> key_at(const AttentionInputs& in, const Sequence& s, std::int64_t head,
                           std::int64_t j) {
  std::vector<double> key = vector_at(in.k, s.keys[j], head);
  const std::int64_t pairs = in.inv_freq.numel();
  for (std::int64_t i = 0; i < pairs; ++i) {
    const bool halves = in.rope_style == RopeStyle::half_split;
    double& a = key[halves ? i : 2 * i];
    double& b = key[halves ? i + pairs : 2 * i + 1];
    const double angle = static_cast<double>(j) * in.inv_freq.at(i);
    const double rotated = a * std::cos(angle) - b * std::sin(angle);
    b = b * std::cos(angle) + a * std::sin(angle);
    a = rotated;
  }
  return key;
}

// All intermediate results of one head of one sequence.
struct Head {
  std::vector<std::vector<double>> q, k, v;
  Array p;      // [n_q, n_k]: softmax
  Array keep;   // [n_q, n_k]: 1 / (1 - dropout), or 0 where dropped
  Array slope;  // [n_q, n_k]: derivative of the softcap
  std::vector<double> lse;
};

double scale_of(const AttentionInputs& in) {
  return in.scale != 0 ? in.scale : 1.0 / std::sqrt(static_cast<double>(in.q.size(3)));
}

double keep_of(const Dropout& dropout, std::int64_t batch, std::int64_t head, std::int64_t i,
               std::int64_t j) {
  if (dropout.p == 0) return 1.0;
  const auto u32 = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
  const PhiloxWords words = dropout_words(dropout.seed, u32(batch), u32(head), u32(i), u32(j));
  return words[j % 4] >= dropout_threshold(dropout.p) ? 1.0 / (1.0 - double{dropout.p}) : 0.0;
}

Head head_of(const AttentionInputs& in, const Sequence& s, std::int64_t head) {
  const std::int64_t n_q = std::ssize(s.queries), n_k = std::ssize(s.keys);
  const std::int64_t kv_head = head / (in.q.size(2) / in.k.size(2));
  Head h;
  for (const Place& place : s.queries) h.q.push_back(vector_at(in.q, place, head));
  for (std::int64_t j = 0; j < n_k; ++j) h.k.push_back(key_at(in, s, kv_head, j));
  for (const Place& place : s.keys) h.v.push_back(vector_at(in.v, place, kv_head));
  h.p = h.keep = h.slope = Array({n_q, n_k});
  const double scale = scale_of(in);
  for (std::int64_t i = 0; i < n_q; ++i) {
    std::vector<double> scores(static_cast<std::size_t>(n_k), -INFINITY);
    for (std::int64_t j = 0; j < n_k; ++j) {
      h.keep.at(i, j) = keep_of(in.dropout, s.index, head, i, j);
      if (!sees(in.mask, i, i + n_k - n_q, j)) continue;
      const double score = scale * dot(h.q[i], h.k[j]);
      const double tanh = in.softcap > 0 ? std::tanh(score / in.softcap) : 0.0;
      scores[j] = in.softcap > 0 ? in.softcap * tanh : score;
      h.slope.at(i, j) = 1.0 - tanh * tanh;
    }
    const double largest = n_k > 0 ? *std::max_element(scores.begin(), scores.end()) : -INFINITY;
    double sum = 0;
    for (double score : scores) sum += largest == -INFINITY ? 0.0 : std::exp(score - largest);
    h.lse.push_back(sum > 0 ? largest + std::log(sum) : -INFINITY);
    for (std::int64_t j = 0; j < n_k && sum > 0; ++j) {
      h.p.at(i, j) = std::exp(scores[j] - largest) / sum;
    }
  }
  return h;
}

}  // namespace

bool sees(const Mask& mask, std::int64_t i, std::int64_t p, std::int64_t j) {
  switch (mask.kind()) {
    case Mask::Kind::full:
      return true;
    case Mask::Kind::causal:
      return j <= p;
    case Mask::Kind::window: {
      const bool left = mask.left() == -1 || j >= p - mask.left();
      const bool right = mask.right() == -1 || j <= p + mask.right();
      return left && right;
    }
    case Mask::Kind::sinks:
      return j <= p && (j < mask.n_sink() || j >= p - mask.left());
    case Mask::Kind::blocks: {
      const BlockMask& pattern = mask.pattern();
      const std::int64_t row = i / pattern.block(), column = j / pattern.block();
      bool listed = false;
      for (std::int64_t at = pattern.offsets()[row]; at < pattern.offsets()[row + 1]; ++at) {
        listed = listed || pattern.indices()[at] == column;
      }
      return listed && (mask.right() == -1 || j <= p);
    }
  }
  return false;
}

AttentionResult attention(const AttentionInputs& in) {
  AttentionResult result{Array(in.q.shape), Array({in.q.size(0), in.q.size(2), in.q.size(1)})};
  for (const Sequence& s : sequences(in)) {
    for (std::int64_t head = 0; head < in.q.size(2); ++head) {
      const Head h = head_of(in, s, head);
      for (std::size_t i = 0; i < s.queries.size(); ++i) {
        const Place at = s.queries[i];
        result.lse.at(at.batch, head, at.row) = h.lse[i];
        double* out = result.out.row(at.batch, at.row, head);
        for (std::size_t j = 0; j < s.keys.size(); ++j) {
          add(out, h.p.at(i, j) * h.keep.at(i, j), h.v[j]);
        }
      }
    }
  }
  return result;
}

//   out_i = sum_j p_ij keep_ij v_j          dv_j = sum_i p_ij keep_ij dout_i
//   p = softmax(c(scale q k))               dp_ij = keep_ij dout_i v_j
//                                           ds_ij = p_ij (dp_ij - sum_l p_il dp_il) c'_ij
//                                           dq_i = scale sum_j ds_ij k_j,  dk_j likewise
AttentionGradients attention_backward(const AttentionInputs& in, const Array& d_out) {
  AttentionGradients result{Array(in.q.shape), Array(in.k.shape), Array(in.v.shape)};
  const std::int64_t group = in.q.size(2) / in.k.size(2);
  for (const Sequence& s : sequences(in)) {
    const std::size_t n_q = s.queries.size(), n_k = s.keys.size();
    for (std::int64_t head = 0; head < in.q.size(2); ++head) {
      const Head h = head_of(in, s, head);
      for (std::size_t i = 0; i < n_q; ++i) {
        const std::vector<double> g = vector_at(d_out, s.queries[i], head);
        std::vector<double> dp(n_k);
        double mean = 0;
        for (std::size_t j = 0; j < n_k; ++j) {
          dp[j] = h.keep.at(i, j) * dot(g, h.v[j]);
          mean += h.p.at(i, j) * dp[j];
        }
        for (std::size_t j = 0; j < n_k; ++j) {
          const double ds = h.p.at(i, j) * (dp[j] - mean) * h.slope.at(i, j) * scale_of(in);
          const Place q_at = s.queries[i], k_at = s.keys[j];
          add(result.d_q.row(q_at.batch, q_at.row, head), ds, h.k[j]);
          add(result.d_k.row(k_at.batch, k_at.row, head / group), ds, h.q[i]);
          add(result.d_v.row(k_at.batch, k_at.row, head / group), h.p.at(i, j) * h.keep.at(i, j),
              g);
        }
      }
    }
  }
  return result;
}

}  // namespace tessera::reference
