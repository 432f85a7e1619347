// C-26, C-05 (R-REL-10): the encodings that linear attention could compute, whichever of them this program takes.
//
// The weights w(m, n) of causal linear attention come out of a recurrence, whose state is all that later tokens know of
// earlier ones. It holds at least as many vectors as the rank of the block of w whose rows are the tokens from some
// place on and whose columns are those before it, and there is a recurrence that holds no more (Dewilde and van der
// Veen 1998, Time-Varying Systems and Computations, chapter 3). An encoding fits if that rank stays what it is when the
// tokens become more; where it is half of all tokens, the keys themselves are no larger. What is measured here is the
// rank of the block below and left of the middle, for w of two kinds:
//
//   sum     the scores of attention with features phi(q), phi(k) in the place of q and k, as Eq. 19 has them with RoPE:
//           a rotation rotates features, and a term is added to their product
//   factor  phi(q).phi(k) exp(s), s what the encoding adds to a score of q and k, as softmax has it
//
// A number for each query, which is no weight of a key, is left out of both. Queries, keys and parameters are drawn.
#include <ATen/ATen.h>
#include <ATen/ops/linalg_matrix_rank.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>

#include "encoding_arms.h"
#include "experiment.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"
#include "rf/nn/attention.h"
#include "rf/nn/encoding.h"
#include "rf/nn/encoding_info.h"
#include "rf/nn/linear_attention.h"
#include "rf/train/compare.h"
#include "tensors.h"

namespace rf::reproduce {

namespace {

struct PairwiseSettings {
  int64_t head_dim = 16, hidden_size = 64;  // one head, as many features
  std::vector<int64_t> tokens = {64, 128, 256, 512};
  std::vector<std::string> encodings = encoding_arms(head_dim, tokens.front());
  double parameters_std = 0.3;  // added to how parameters start
  double tolerance = 1e-9;      // singular values below this part of the largest are 0
  double grows = 1.5;           // states for the last number of tokens, of those for half as many
  Seeds seeds = {1};
  RF_MEMBERS(PairwiseSettings, head_dim, hidden_size, tokens, encodings, parameters_std, tolerance, grows, seeds)
};

at::Tensor features(const at::Tensor& x) {
  return at::elu(x) + 1;
}

// A layer of one head with an encoding, and a text; all float64.
class DrawnLayer {
 public:
  DrawnLayer(const std::string& arm, const PairwiseSettings& settings) {
    const at::NoGradGuard no_grad;
    const int64_t dim = settings.head_dim, width = settings.hidden_size;
    at::manual_seed(settings.seeds.front());
    encoding_ = nn::make_encoding(train::parse_arm(arm), {.layers = 1,
                                                          .heads = 1,
                                                          .head_dim = dim,
                                                          .hidden_size = width,
                                                          .input_size = width,
                                                          .max_position_embeddings = settings.tokens.back(),
                                                          .causal = true,
                                                          .vocab_size = 1});
    encoding_->to(at::kDouble);
    for (at::Tensor& parameter : encoding_->parameters()) {
      parameter.add_(at::randn_like(parameter), settings.parameters_std);
    }
    const auto draw = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); };
    hidden_BTC_ = draw({1, settings.tokens.back(), width});
    projections_.query_weight = draw({dim, width}) / std::sqrt(static_cast<double>(width));
    projections_.key_weight = draw({dim, width}) / std::sqrt(static_cast<double>(width));
    projections_.value_weight = projections_.key_weight;
  }

  at::Tensor queries(int64_t tokens) const { return projected(projections_.query_weight, tokens); }
  at::Tensor keys(int64_t tokens) const { return projected(projections_.key_weight, tokens); }

  // The scores of the first tokens [T,T], but for a number in each row; those behind the diagonal are -infinity.
  at::Tensor scores(const at::Tensor& query_BTHD, const at::Tensor& key_BTHD, bool has_encoding) {
    const at::NoGradGuard no_grad;
    const int64_t tokens = query_BTHD.size(1);
    const nn::Positions positions = nn::make_positions(integers(0, tokens));
    nn::Terms terms;
    if (has_encoding) {
      nn::Projections read = projections_;
      if (encoding_->numbers_per_token() > 0) {
        read.token_numbers_BSN = encoding_->token_numbers(0, hidden_BTC_.narrow(1, 0, tokens));
      }
      if (encoding_->reads_vectors()) std::tie(read.query_BTHD, read.key_BSHD) = std::pair(query_BTHD, key_BTHD);
      terms = encoding_->terms(0, encoding_->shared(positions, at::kDouble), read);
      terms.value_table = {};
      terms.value = {};
    }
    const nn::AttentionContext causal(positions, /*attend=*/{}, {.left = -1, .right = 0});
    const at::Tensor one_hot_BTHT = at::eye(tokens, at::kDouble).unsqueeze(0).unsqueeze(2);
    return nn::attention(query_BTHD, key_BTHD, one_hot_BTHT, terms, causal).squeeze(2).squeeze(0).log();
  }

 private:
  at::Tensor projected(const at::Tensor& weight, int64_t tokens) const {
    return at::matmul(hidden_BTC_.narrow(1, 0, tokens), weight.t()).unsqueeze(2);
  }

  std::shared_ptr<nn::Encoding> encoding_;
  at::Tensor hidden_BTC_;
  nn::Projections projections_;
};

at::Tensor below_the_middle(const at::Tensor& weights_TT) {
  const int64_t half = weights_TT.size(0) / 2;
  return weights_TT.narrow(0, half, half).narrow(1, 0, half);
}

at::Tensor without_row_means(const at::Tensor& x) {
  return x - x.mean(1, /*keepdim=*/true);
}

struct States {
  int64_t sum, factor;
};
States states(DrawnLayer& layer, int64_t tokens, const PairwiseSettings& settings) {
  const auto rank = [&](const at::Tensor& block) {
    return at::linalg_matrix_rank(block, /*atol=*/std::nullopt, /*rtol=*/settings.tolerance).item<int64_t>();
  };
  const at::Tensor q = layer.queries(tokens), k = layer.keys(tokens);
  const at::Tensor of_features = below_the_middle(layer.scores(features(q), features(k), true));
  const at::Tensor added = below_the_middle(layer.scores(q, k, true) - layer.scores(q, k, false));
  return {.sum = rank(without_row_means(of_features)),
          .factor = settings.head_dim * rank(without_row_means(added).exp())};
}

bool is_taken(const std::string& arm, const nn::EncodingInfo& info, int64_t head_dim) {
  const bool causal = info.needs == nn::EncodingInfo::Needs::kCausal;
  ModelConfig config;
  config.position_encodings = {train::parse_arm(arm)};
  config.hidden_size = config.embedding_size = head_dim;
  config.num_attention_heads = 1;
  try {
    nn::check_linear_attention({}, info, causal ? nn::Direction::kCausal : nn::Direction::kBidirectional);
    check_no_log_n(config);
    return true;
  } catch (const Error&) {
    return false;
  }
}

Result run_pairwise(const PairwiseSettings& settings, const Context&) {
  Result result{.columns = {"encoding", "terms", "a term for each pair"}, .rows = {}};
  for (const int64_t tokens : settings.tokens) result.columns.push_back(fmt::format("states for {} tokens", tokens));
  result.columns.insert(
      result.columns.end(),
      {"the encoding as", fmt::format("those for {}, of those for half as many", settings.tokens.back()),
       "taken by this program"});
  // Those with a term for each pair. An encoding fits if its states are fewer than `grows` times as many.
  std::vector<std::string> same, more, grow;
  bool others_fit = true;
  double most_more = 1;
  int64_t most_of_others = 0;
  for (const std::string& arm : settings.encodings) {
    const nn::EncodingInfo& info = nn::encoding_entry(encoding_of(arm)).info;
    DrawnLayer layer(arm, settings);
    std::vector<States> all;
    for (const int64_t tokens : settings.tokens) all.push_back(states(layer, tokens, settings));
    const bool as_factor = all.back().factor < all.back().sum;
    std::vector<int64_t> least;
    for (const States& each : all) least.push_back(as_factor ? each.factor : each.sum);
    const auto last = static_cast<double>(least.back()), before = static_cast<double>(least[least.size() - 2]);
    const double growth = last / before;
    const bool grows = growth >= settings.grows;
    const bool pairwise = info.pairwise == nn::EncodingInfo::Pairwise::kYes;
    nlohmann::json row = {info.name, info.terms, pairwise ? "yes" : "no"};
    for (const int64_t each : least) row.push_back(each);
    row.insert(row.end(),
               {as_factor ? "factor" : "sum", growth, is_taken(arm, info, settings.head_dim) ? "yes" : "no"});
    result.rows.push_back(row);
    if (pairwise) {
      if (!grows) most_more = std::max(most_more, growth);
      (grows ? grow : last == before ? same : more).push_back(fmt::format("{} {}", info.name, least.back()));
    } else {
      others_fit = others_fit && !grows;
      most_of_others = std::max(most_of_others, least.back());
    }
  }
  const std::string figures = fmt::format(
      "at {} tokens encodings without a term for each pair, rope among them, have {} states; of {} with one, {} have "
      "as many as with half the tokens ({}), {} up to {:.2f} times as many ({}), and {} at least {:g} times as many "
      "({})",
      settings.tokens.back(), most_of_others, same.size() + more.size() + grow.size(), same.size(),
      fmt::join(same, ", "), more.size(), most_more, fmt::join(more, ", "), grow.size(), settings.grows,
      fmt::join(grow, ", "));
  const bool holds = others_fit && same.empty() && more.empty() && !grow.empty();
  result.findings = {{"C-26", holds, figures}, {"C-05", holds, figures}};
  return result;
}

}  // namespace

Experiment pairwise() {
  return {.name = "pairwise",
          .spec = "R-REL-10",
          .title = "Which encodings fit into linear attention?",
          .claims = {"C-26", "C-05"},
          .expected =
              "With each encoding that has a term for each pair of tokens, causal linear attention needs more states "
              "for more tokens, at least 1.5 times as many at 512 tokens as at 256; with the others, RoPE among them, "
              "it does not.",
          .budget = "seconds",
          .method = run_pairwise,
          .kind = Kind::kMathematics,
          .revision = 4,
          .note =
              "States are the rank of the weights of later queries and earlier keys, singular values above 1e-9 of the "
              "largest, of one drawn layer with one head of 16 and one drawn text. That encodings with a term for each "
              "pair fit is shown by those whose states are the same for every number of tokens; those that need a few "
              "more with each doubling still grow, if slowly. Such a recurrence exists by this rank; the program has "
              "none of them. For terms that read the text (fox, cope, path) it is the rank of this text."};
}

}  // namespace rf::reproduce
