// A trained bias for each head and bucket of distances, added to the scores (Raffel et al. 2020; arXiv 2104.09864 Eq.
// 8): score = q.k + b[bucket(n - m)]. All layers share one table. T5 does not divide q.k by sqrt(D); "scale": "sqrt"
// does, without scaling the bias. Keys after the query have separate buckets unless attention is causal. The table
// starts as N(0, initializer_range^2). Without 1/sqrt(D), the query and key projections are initialised as in T5
// (Encoding::scales_scores).
#include <optional>

#include "distance_buckets.h"
#include "layer_parameters.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

class T5 : public LengthFreeEncoding {
 public:
  T5(io::StrictObject& options, const EncodingShape& shape) {
    const RelativeBuckets buckets =
        relative_buckets(options, shape.causal ? BucketDirections::kPastOnly : BucketDirections::kBoth);
    distances_ = buckets.distances;
    scale_ = options.choice<std::optional<double>>("scale", 1.0, {{"none", 1.0}, {"sqrt", std::nullopt}});
    table_BH_ = register_parameter("relative_attention_bias", drawn({buckets.count, shape.heads}, shape));
    set_made_for(shape.causal ? MadeFor::kCausal : MadeFor::kBidirectional);
  }

  bool scales_scores() const override { return scale_ != 1.0; }

  Shared compute_shared(const Positions&, at::ScalarType) override {
    const at::Tensor rows_HR = table_BH_->t().index_select(1, on_device(distances_.rows, table_BH_->device()));
    return {.terms = {.bias = {rows_HR, distances_.lo, distances_.hi}, .scale = scale_}};
  }

 private:
  DistanceTable distances_;
  std::optional<double> scale_;
  Parameter table_BH_;  // [buckets, H]
};

}  // namespace

EncodingEntry t5() {
  return {.info = {.name = "t5",
                   .summary = "a trained bias for each head and bucket of distances",
                   .equation = "score = q.k + b[bucket(r)]",
                   .source = "Raffel et al. 2020, arXiv 1910.10683; arXiv 2104.09864 Eq. 8",
                   .terms = "b, s",
                   .parameters = "buckets * H",
                   .cost = "T * S * H additions",
                   .extrapolates = "yes, far distances share a bucket",
                   .keys = {"relative_attention_num_buckets = 32", "relative_attention_max_distance = 128",
                            "scale = \"none\" (or \"sqrt\")"}},
          .make = construct<T5>};
}

}  // namespace rf::nn::posenc
