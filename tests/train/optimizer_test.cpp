// AdamW against torch.optim.AdamW (R-TRN-03), clipping, and gradients that are not finite.
#include "optimizer.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <limits>

#include "rf/train/run_config.h"
#include "support.h"
#include "tolerances.h"

namespace rf::train {
namespace {

// torch.optim.AdamW, which is another implementation than the fused kernel: groups with and without decay, clipping by
// torch's own clip_grad_norm_, and every schedule of the run file.
TEST(AdamW, IsTorchs) {
  const AdamWOptions options{0.1, 0.9, 0.98, 1e-6, /*clip_norm=*/1.0};
  constexpr int64_t kSteps = 20;
  for (const Schedule kind : {Schedule::kConstant, Schedule::kLinear, Schedule::kCosine, Schedule::kInverseSqrt}) {
    ScheduleConfig schedule;
    schedule.kind = kind;
    schedule.learning_rate = 0.05;
    schedule.warmup_steps = 4;
    at::manual_seed(11);
    std::vector<Parameter> ours;
    std::vector<at::Tensor> theirs;
    for (const Decay decay : {Decay::kApplied, Decay::kNone, Decay::kApplied, Decay::kNone}) {
      const at::Tensor start = at::randn({3, 5});
      ours.push_back({std::to_string(ours.size()), start.clone().requires_grad_(true), decay});
      theirs.push_back(start.clone().requires_grad_(true));
    }
    using Options = torch::optim::AdamWOptions;
    const auto adamw = [&](double decay) {
      return Options(0.05).betas({options.beta1, options.beta2}).eps(options.epsilon).weight_decay(decay);
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const size_t i : {0, 1}) {
      groups.emplace_back(std::vector<at::Tensor>{theirs[i], theirs[i + 2]},
                          std::make_unique<Options>(adamw(i == 0 ? options.weight_decay : 0)));
    }
    torch::optim::AdamW reference(groups, adamw(0));
    AdamW optimizer(ours, options);
    for (int64_t t = 1; t <= kSteps; ++t) {
      for (size_t i = 0; i < theirs.size(); ++i) {
        theirs[i].mutable_grad() = at::randn({3, 5}) * (t % 3 == 0 ? 3.0 : 0.1);
        ours[i].weight.mutable_grad() = theirs[i].grad().clone();
      }
      const double rate = learning_rate(schedule, t, kSteps);
      for (auto& group : reference.param_groups()) group.options().set_lr(rate);
      const double norm = torch::nn::utils::clip_grad_norm_(theirs, options.clip_norm);
      EXPECT_NEAR(optimizer.step(rate, t), norm, rf::tests::kFloat32Primitive * norm);
      reference.step();
    }
    EXPECT_EQ(optimizer.updates(), kSteps);
    for (size_t i = 0; i < theirs.size(); ++i) {
      const double error = (ours[i].weight - theirs[i]).abs().max().item<double>();
      EXPECT_LE(error, rf::tests::kFloat32Primitive * 10) << i;
    }
  }
}

TEST(AdamW, StopsAtAGradientThatIsNotFinite) {
  const Parameter p = {"layer.weight", at::tensor({1.0f, 2.0f}).requires_grad_(true), Decay::kApplied};
  AdamW optimizer({p}, {});
  p.weight.mutable_grad() = at::tensor({0.5f, std::numeric_limits<float>::quiet_NaN()});
  expect_has(error_of([&] { optimizer.step(0.1, 37); }), "got nan in layer.weight at step 37");
  EXPECT_TRUE(p.weight.equal(at::tensor({1.0f, 2.0f})));
}

}  // namespace
}  // namespace rf::train
