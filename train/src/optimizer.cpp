// AdamW by torch's fused kernel (optimizer.h). Clipping uses the kernel's gradient scale, which avoids an extra pass
// over the gradients.
#include "optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/train/job.h"

namespace rf::train {

namespace {

// Numbers of all ranks that are gathered together: 64 MiB.
constexpr int64_t kGathered = int64_t{16} << 20;

int64_t part_size(int64_t elements, const Ranks& ranks) { return (elements + ranks.size() - 1) / ranks.size(); }

}  // namespace

std::optional<size_t> group_of(const std::vector<ParameterGroup>& groups, const std::string& name) {
  const auto matches = [&](const ParameterGroup& each) {
    return ::fnmatch(each.parameters.c_str(), name.c_str(), 0) == 0;
  };
  const auto found = std::find_if(groups.begin(), groups.end(), matches);
  return found == groups.end() ? std::nullopt : std::optional<size_t>(found - groups.begin());
}

AdamW::AdamW(std::vector<Parameter> parameters, AdamWOptions options, const Ranks& divided_among)
    : options_(options), ranks_(divided_among) {
  // Two for each group of the options, after two for the other parameters: with decay and without.
  const std::vector<ParameterGroup>& named = options_.groups;
  groups_.resize(2 + 2 * named.size());
  groups_[0].weight_decay = options.weight_decay;
  for (size_t i = 0; i < named.size(); ++i) {
    Group *const decayed = &groups_[2 + 2 * i], *const other = decayed + 1;
    decayed->rate = other->rate = named[i].learning_rate;
    decayed->weight_decay = named[i].weight_decay.value_or(options.weight_decay);
    other->weight_decay = named[i].weight_decay.value_or(0);
  }
  for (const Parameter& parameter : parameters) elements_ += parameter.weight.numel();
  int64_t offset = 0;
  for (Parameter& parameter : parameters) {
    const std::optional<size_t> of = group_of(named, parameter.name);
    Group& group = groups_[(of ? 2 + 2 * *of : 0) + (parameter.decay == Decay::kApplied ? 0 : 1)];
    group.names.push_back(parameter.name);
    group.offsets.push_back(offset);
    group.ranges.push_back(range_of(offset, parameter.weight.numel(), ranks_));
    group.exp_avg.push_back(at::zeros_like(group.ranges.back().of(parameter.weight)));
    group.exp_avg_sq.push_back(at::zeros_like(group.exp_avg.back()));
    offset += parameter.weight.numel();
    group.weights.push_back(std::move(parameter.weight));
  }
  for (size_t i = 0; i < named.size(); ++i) {
    if (!groups_[2 + 2 * i].names.empty() || !groups_[3 + 2 * i].names.empty()) continue;
    fail("run file", "groups[{}].parameters must match a parameter of the model that no earlier group has, got {}", i,
         io::printable(named[i].parameters));
  }
}

// The tensor itself if the part is all of it.
at::Tensor AdamW::Range::of(const at::Tensor& whole) const {
  return length == whole.numel() ? whole : whole.detach().view({-1}).narrow(0, begin, length);
}

AdamW::Range AdamW::range_of(int64_t offset, int64_t elements, const Ranks& ranks) const {
  const int64_t part = part_size(elements_, ranks), part_begin = part * ranks.index();
  const int64_t begin = std::clamp<int64_t>(part_begin - offset, 0, elements);
  return {begin, std::clamp<int64_t>(part_begin + part - offset, begin, elements) - begin};
}

void AdamW::drop_gradients() {
  for (const Group& group : groups_) {
    for (const at::Tensor& weight : group.weights) weight.mutable_grad().reset();
  }
}

AdamW::Gradients AdamW::gradients() const {
  Gradients all;
  for (const Group& group : groups_) {
    all.emplace_back();
    for (const at::Tensor& weight : group.weights) {
      all.back().push_back(weight.grad().defined() ? weight.grad() : at::zeros_like(weight));
    }
  }
  return all;
}

at::Tensor AdamW::norms_of(const Gradients& gradients) {
  std::vector<at::Tensor> norms;
  for (const std::vector<at::Tensor>& of_group : gradients) {
    if (of_group.empty()) continue;
    for (const at::Tensor& norm : at::_foreach_norm(of_group)) norms.push_back(norm.to(at::kFloat));
  }
  return norms.empty() ? at::zeros({0}, at::kFloat) : at::stack(norms);
}

double AdamW::norm_of(const at::Tensor& norms, int64_t step) const {
  double sum_of_squares = 0;
  const auto* next = norms.const_data_ptr<float>();
  for (const Group& group : groups_) {
    for (const std::string& name : group.names) {
      const double norm = *next++;
      if (!std::isfinite(norm)) {
        throw Diverged("train",
                       fmt::format("the gradient must be finite, got {} in {} at step {}; try a lower learning_rate or "
                                   "a longer warm-up",
                                   norm, name, step),
                       step);
      }
      sum_of_squares += norm * norm;
    }
  }
  return std::sqrt(sum_of_squares);
}

double AdamW::step(double learning_rate, int64_t step) {
  return norm_of(start_step(learning_rate, step).to(at::kCPU), step);
}

AdamW::Clipping AdamW::clipping(const at::Tensor& norms, int64_t step) const {
  const double limit = options_.clip_norm;
  if (norms.is_cpu()) {
    const double norm = norm_of(norms, step);
    if (limit == 0 || norm + 1e-6 <= limit) return {};
    return {at::full({}, (norm + 1e-6) / limit, at::kFloat), {}};
  }
  const at::Tensor norm = norms.to(at::kDouble).square().sum().sqrt();
  Clipping of_device{{}, norm.isfinite().logical_not().to(at::kFloat)};
  if (limit > 0) of_device.divisor = ((norm + 1e-6) / limit).clamp_min(1).to(at::kFloat);
  return of_device;
}

at::Tensor AdamW::start_step(double learning_rate, int64_t step) {
  const c10::NoGradGuard no_grad;
  const Gradients gradients = this->gradients();
  const at::Tensor norms = norms_of(gradients);
  const Clipping clipping = this->clipping(norms, step);
  ++updates_;
  const at::Tensor updates = at::full({}, static_cast<double>(updates_), norms.options());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    std::vector<at::Tensor> weights, own_gradients, exp_avg, exp_avg_sq;
    for (size_t i = 0; i < group.weights.size(); ++i) {
      if (group.ranges[i].length == 0) continue;
      weights.push_back(group.ranges[i].of(group.weights[i]));
      own_gradients.push_back(group.ranges[i].of(gradients[g][i]));
      exp_avg.push_back(group.exp_avg[i]);
      exp_avg_sq.push_back(group.exp_avg_sq[i]);
    }
    if (weights.empty()) continue;
    const std::vector<at::Tensor> counts(weights.size(), updates);
    at::_fused_adamw_(weights, own_gradients, exp_avg, exp_avg_sq, {}, counts, learning_rate * group.rate,
                      options_.beta1, options_.beta2, group.weight_decay, options_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, clipping.divisor, clipping.is_left_out);
  }
  gather_weights();
  return norms;
}

// Piece by piece, so that little memory is needed besides the weights.
void AdamW::gather_weights() {
  if (ranks_.size() == 1) return;
  const int64_t part = part_size(elements_, ranks_), step = std::max<int64_t>(kGathered / ranks_.size(), 1);
  for (int64_t piece = 0; piece < part; piece += step) {
    const int64_t length = std::min(step, part - piece);
    const auto some = std::ranges::find_if(groups_, [](const Group& group) { return !group.weights.empty(); });
    const at::TensorOptions options = some->weights.front().options();
    at::Tensor own = at::zeros({length}, options), all = at::empty({ranks_.size(), length}, options);
    // Copies the overlap of a rank's piece with each weight, in either direction.
    const auto copy = [&](at::Tensor numbers, int64_t rank, bool to_weights) {
      const int64_t begin = rank * part + piece, end = std::min(begin + length, std::min((rank + 1) * part, elements_));
      for (const Group& group : groups_) {
        for (size_t i = 0; i < group.weights.size(); ++i) {
          const int64_t offset = group.offsets[i];
          const int64_t from = std::max(begin, offset), to = std::min(end, offset + group.weights[i].numel());
          if (from >= to) continue;
          const at::Tensor weight = group.weights[i].detach().view({-1}).narrow(0, from - offset, to - from);
          const at::Tensor there = numbers.narrow(0, from - begin, to - from);
          to_weights ? weight.copy_(there) : there.copy_(weight);
        }
      }
    };
    copy(own, ranks_.index(), false);
    ranks_.gather_into(own, all);
    for (int64_t rank = 0; rank < ranks_.size(); ++rank) {
      if (rank != ranks_.index()) copy(all[rank], rank, true);
    }
  }
}

int64_t AdamW::moments_of_all() const {
  int64_t weights = 0;
  for (const Group& group : groups_) weights += std::ssize(group.names);
  return 2 * weights;
}

std::vector<MomentPart> AdamW::moments() const { return moments_to_write(ranks_); }

std::vector<MomentPart> AdamW::moments_to_write(const Ranks& ranks) const {
  const bool is_divided = ranks_.size() > 1;
  std::vector<MomentPart> parts;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      const int64_t elements = group.weights[i].numel();
      const Range range = is_divided ? group.ranges[i] : range_of(group.offsets[i], elements, ranks);
      if (range.length == 0 && elements > 0) continue;
      for (const auto& [name, moments] : {std::pair{"exp_avg.", &group.exp_avg}, {"exp_avg_sq.", &group.exp_avg_sq}}) {
        const at::Tensor& had = (*moments)[i];
        parts.push_back({name + group.names[i], range.begin, is_divided ? had : range.of(had)});
      }
    }
  }
  return parts;
}

}  // namespace rf::train
