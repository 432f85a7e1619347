// A trained bias for each head and bucket of distances, added to the scores (Raffel et al. 2020; arXiv 2104.09864 Eq.
// 8): score = q.k + b[bucket(n - m)]. All layers share one table. T5 does not divide q.k by sqrt(D); "scale": "sqrt"
// does, without scaling the bias. Buckets: distance_buckets.h; keys after the query have separate buckets unless
// attention is causal. The table starts as N(0, initializer_range^2). Without 1/sqrt(D), the query and key projections
// are initialised as in T5 (Encoding::scales_scores).
#include <ATen/ops/index_select.h>

#include "distance_buckets.h"
#include "layer_parameters.h"
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

class T5 : public Encoding {
 public:
  T5(RelativeBuckets buckets, std::optional<double> scale, const EncodingShape& shape)
      : distances_(std::move(buckets.distances)),
        scale_(scale),
        table_BH_(register_parameter("relative_attention_bias", drawn({buckets.count, shape.heads}, shape))) {}

  bool scales_scores() const override { return scale_ != 1.0; }

  Shared compute_shared(const Positions&, at::ScalarType) override {
    Shared all;
    all.terms.scale = scale_;
    all.terms.bias = {table_BH_->t().index_select(1, distances_.rows), distances_.lo, distances_.hi};
    return all;
  }
  int64_t last_new_length() const override { return 1; }

 private:
  DistanceRows distances_;
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
                   .file = "nn/posenc/t5.cpp",
                   .test = "tests/nn/test_t5.py",
                   .keys = {"relative_attention_num_buckets = 32", "relative_attention_max_distance = 128",
                            "scale = \"none\" (or \"sqrt\")"},
                   .pairwise = EncodingInfo::Pairwise::kYes},
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            RelativeBuckets buckets =
                relative_buckets(options, shape.causal ? BucketDirections::kPastOnly : BucketDirections::kBoth);
            enum class Scale { kNone, kSqrt };
            const Scale scale = options.choice("scale", Scale::kNone, {{"none", Scale::kNone}, {"sqrt", Scale::kSqrt}});
            const auto made = std::make_shared<T5>(
                std::move(buckets), scale == Scale::kNone ? std::optional<double>(1.0) : std::nullopt, shape);
            made->set_made_for(shape.causal ? MadeFor::kCausal : MadeFor::kBidirectional);
            return made;
          }};
}

}  // namespace rf::nn::posenc
