// What a quantised KV cache costs llama.cpp in perplexity: the nll of each token of a text, read in
// chunks, once for each type of keys and values, and the differences from the first type.
//
//   llama_cache MODEL.gguf IDS.txt CONTEXT BOS
//
// IDS.txt has token ids, as `tessera tokenize` gives them: both programs then read the same tokens
// in the same chunks, bos in front of each. It needs llama.cpp, and is not part of our build:
//
//   g++ -std=c++17 -O2 -I LLAMA/include -I LLAMA/ggml/include llama_cache.cc -o llama_cache
//       LIBRARIES of LLAMA/build -fopenmp -lpthread -ldl
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace {

// The nll of all tokens but each chunk's first, which is bos.
std::vector<double> score(llama_model* model, const std::vector<llama_token>& ids, int context,
                          llama_token bos, ggml_type type) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(context);
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = type;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;  // values of 8 bits need it
  llama_context* ctx = llama_init_from_model(model, params);
  if (ctx == nullptr) std::exit(1);
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  llama_batch batch = llama_batch_init(context, 0, 1);
  std::vector<double> nlls;
  for (std::size_t begin = 0; begin < ids.size(); begin += static_cast<std::size_t>(context) - 1) {
    std::vector<llama_token> chunk{bos};
    const std::size_t end = std::min(ids.size(), begin + static_cast<std::size_t>(context) - 1);
    chunk.insert(chunk.end(), ids.begin() + static_cast<long>(begin),
                 ids.begin() + static_cast<long>(end));
    llama_memory_clear(llama_get_memory(ctx), true);
    batch.n_tokens = static_cast<int>(chunk.size());
    for (int i = 0; i < batch.n_tokens; ++i) {
      batch.token[i] = chunk[static_cast<std::size_t>(i)];
      batch.pos[i] = i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_decode(ctx, batch) != 0) std::exit(1);
    for (int i = 0; i + 1 < batch.n_tokens; ++i) {
      const float* logits = llama_get_logits_ith(ctx, i);
      const double largest = *std::max_element(logits, logits + vocab);
      double sum = 0;
      for (int t = 0; t < vocab; ++t) sum += std::exp(logits[t] - largest);
      nlls.push_back(largest + std::log(sum) - logits[chunk[static_cast<std::size_t>(i) + 1]]);
    }
  }
  llama_batch_free(batch);
  llama_free(ctx);
  return nlls;
}

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

// The standard error of the mean of a series whose neighbours are alike, from the means of blocks
// of 256, as tessera::block_standard_error() computes it.
double standard_error(const std::vector<double>& x) {
  constexpr std::size_t kBlock = 256;
  std::vector<double> means;
  for (std::size_t i = 0; i + kBlock <= x.size(); i += kBlock) {
    means.push_back(
        mean({x.begin() + static_cast<long>(i), x.begin() + static_cast<long>(i + kBlock)}));
  }
  const double all = mean(means);
  double squares = 0;
  for (double value : means) squares += (value - all) * (value - all);
  const double n = static_cast<double>(means.size());
  return std::sqrt(squares / (n - 1) / n);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "llama_cache MODEL.gguf IDS.txt CONTEXT BOS\n"), 2;
  std::ifstream file(argv[2]);
  std::vector<llama_token> ids;
  for (llama_token id = 0; file >> id;) ids.push_back(id);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return 1;
  std::vector<double> first;
  for (ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    std::vector<double> nlls = score(model, ids, std::atoi(argv[3]), std::atoi(argv[4]), type);
    if (first.empty()) first = nlls;
    std::vector<double> differences = nlls;
    for (std::size_t i = 0; i < nlls.size(); ++i) differences[i] -= first[i];
    std::printf("%-5s %zu tokens, nll %.5f, ppl %.4f, - f16 %+.6f +- %.6f\n", ggml_type_name(type),
                nlls.size(), mean(nlls), std::exp(mean(nlls)), mean(differences),
                standard_error(differences));
    std::fflush(stdout);
  }
}
