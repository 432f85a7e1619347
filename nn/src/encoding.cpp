// The common part of all encodings, and several encodings as one.
#include "rf/nn/encoding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "python_encoding.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"

namespace rf::nn {

namespace {

void check_vectors(const Positions& positions, const Projections& given) {
  const auto check = [](const char* name, const at::Tensor& x, const at::Tensor& ids) {
    if (!x.defined()) fail("encoding", "terms must be given {}, which this encoding reads, got none", name);
    if (!x.is_floating_point()) fail("encoding", "{} must be floating-point, got {}", name, toString(x.scalar_type()));
    if (x.dim() == 4 && ids.size(0) != 1 && ids.size(0) != x.size(0)) {
      fail("encoding", "positions must be those of the {} rows of {}, got {}", x.size(0), name, ids.size(0));
    }
    if (x.dim() != 4 || x.size(1) != ids.size(1)) {
      fail("encoding", "{} must be [batch, {} tokens, heads, head_dim], got [{}]", name, ids.size(1),
           fmt::join(x.sizes(), ", "));
    }
  };
  check("queries", given.query_BTHD, positions.query.ids);
  check("keys", given.key_BSHD, positions.key.ids);
  const at::Tensor &q_BTHD = given.query_BTHD, &k_BSHD = given.key_BSHD;
  if (q_BTHD.size(0) != k_BSHD.size(0) || k_BSHD.size(2) < 1 || q_BTHD.size(2) % k_BSHD.size(2) != 0 ||
      q_BTHD.size(3) != k_BSHD.size(3)) {
    fail("encoding", "keys must fit queries [{}], got [{}]", fmt::join(q_BTHD.sizes(), ", "),
         fmt::join(k_BSHD.sizes(), ", "));
  }
}

}  // namespace

Terms terms_on(Terms terms, at::Device device) {
  const auto tensors = ops::tensors_of(terms);
  const auto is_there = [&](const at::Tensor* x) { return !x->defined() || x->device() == device; };
  if (std::ranges::all_of(tensors, is_there)) return terms;
  const Terms given = terms;
  std::map<const at::TensorImpl*, at::Tensor> moved;  // terms may share a tensor
  for (at::Tensor* x : tensors) {
    const auto [entry, is_new] = moved.try_emplace(x->unsafeGetTensorImpl());
    if (is_new) entry->second = on_device(*x, device);
    *x = entry->second;
  }
  return terms;
}

Shared Encoding::shared(const Positions& positions, at::ScalarType dtype) {
  Shared shared = compute_shared(positions, dtype);
  shared.terms = terms_on(std::move(shared.terms), positions.device());
  shared.table.rows = on_device(shared.table.rows, positions.device());
  shared.positions = positions;
  shared.dtype = dtype;
  return shared;
}

Terms Encoding::terms(int64_t layer, const Shared& shared, const Projections& projections) {
  if (numbers_per_token() > 0) {
    const at::Tensor& numbers_BSN = projections.token_numbers_BSN;
    const int64_t keys = shared.positions.key.ids.size(1), given = numbers_BSN.defined() ? numbers_BSN.size(1) : -1;
    if (given != keys) {
      fail("encoding", "terms must be given hidden_states of all {} keys, which this encoding reads, got {}", keys,
           given < 0 ? "none" : std::to_string(given));
    }
  }
  if (reads_vectors()) check_vectors(shared.positions, projections);
  Terms terms = terms_on(compute_terms(layer, shared, projections), shared.positions.device());
  terms.query_positions = shared.positions.query.ids;
  terms.key_positions = shared.positions.key.ids;
  return terms;
}

namespace {

[[noreturn]] void fail_twice(const char* name) {
  fail("position_encoding", "each term must be set by one encoding, got {} from two", name);
}

bool rotates(const Terms& terms) { return terms.query.defined() || terms.key.defined() || terms.value.defined(); }

void add_terms(Terms& all, Terms part) {
  if (rotates(part)) {
    if (rotates(all) && all.layout != part.layout) fail_twice("the layout of rotations");
    all.layout = part.layout;
  }
  ops::for_each_term([&](const char* name, const char*, auto member) {
    if (!(part.*member).defined()) return;
    if ((all.*member).defined()) fail_twice(name);
    all.*member = std::move(part.*member);
  });
  if (part.scale) {
    if (all.scale) fail_twice("scale");
    all.scale = part.scale;
  }
}

class Combined : public Encoding {
 public:
  explicit Combined(std::vector<std::shared_ptr<Encoding>> encodings) : encodings_(std::move(encodings)) {
    for (size_t i = 0; i < encodings_.size(); ++i) register_module(std::to_string(i), encodings_[i]);
    if (const auto changing = count(&Encoding::changes_words); changing > 1) {
      fail("position_encoding", "word embeddings must be changed by one encoding, got {}", changing);
    }
    if (!scales_scores() && count(&Encoding::acts_in_layers) > 1) {
      const bool in_python = std::any_of(encodings_.begin(), encodings_.end(), [](const auto& encoding) {
        return !encoding->scales_scores() && is_python_encoding(*encoding);
      });
      fail("position_encoding",
           "scores must be divided by sqrt(head_dim) where an encoding that leaves this out ({}) is combined with "
           "others that act on scores, got {}",
           in_python ? "one of Python" : "t5",
           in_python ? "scales_scores = False. Hint: scales_scores = True, and terms without scale"
                     : "scale none. Hint: \"scale\": \"sqrt\"");
    }
    for (const auto& encoding : encodings_) {
      const bool fits = encoding->made_for() == MadeFor::kAnyAttention || encoding->made_for() == made_for();
      if (!fits)
        fail("position_encoding", "encodings must be made for one attention, got causal and bidirectional ones");
    }
  }

  bool reads_sequences() const override { return count(&Encoding::reads_sequences) > 0; }
  bool acts_in_layers() const override { return count(&Encoding::acts_in_layers) > 0; }
  bool changes_words() const override { return count(&Encoding::changes_words) > 0; }
  bool reads_vectors() const override { return count(&Encoding::reads_vectors) > 0; }
  bool reads_projections() const override { return count(&Encoding::reads_projections) > 0; }
  bool changes_with_length() const override { return count(&Encoding::changes_with_length) > 0; }
  bool scales_scores() const override { return count(&Encoding::scales_scores) == std::ssize(encodings_); }

  MadeFor made_for() const override {
    MadeFor all = MadeFor::kAnyAttention;
    for (const auto& encoding : encodings_) {
      if (encoding->made_for() != MadeFor::kAnyAttention) all = encoding->made_for();
    }
    return all;
  }

  at::Tensor input(const TokenPositions& positions, at::ScalarType dtype) override {
    at::Tensor sum;
    for (const auto& encoding : encodings_) add(sum, encoding->input(positions, dtype));
    return sum;
  }

  at::Tensor words(const at::Tensor& words_BTE, const at::Tensor& ids_BT,
                   const TokenPositions& positions) const override {
    at::Tensor changed_BTE = words_BTE;
    for (const auto& encoding : encodings_) changed_BTE = encoding->words(changed_BTE, ids_BT, positions);
    return changed_BTE;
  }

  at::Tensor layer_input(int64_t layer, const Shared& shared) const override {
    at::Tensor sum;
    for (size_t i = 0; i < encodings_.size(); ++i) add(sum, encodings_[i]->layer_input(layer, shared.parts.at(i)));
    return sum;
  }

  const char* beyond_terms() const override {
    for (const auto& encoding : encodings_) {
      if (const char* what = encoding->beyond_terms()) return what;
    }
    return nullptr;
  }

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    Shared shared;
    for (const auto& encoding : encodings_) shared.parts.push_back(encoding->shared(positions, dtype));
    return shared;
  }

  void check_length(int64_t tokens) const override {
    for (const auto& encoding : encodings_) encoding->check_length(tokens);
  }

  int64_t last_new_length() const override {
    int64_t last = 1;
    for (const auto& encoding : encodings_) last = std::max(last, encoding->last_new_length());
    return last;
  }

  int64_t numbers_per_token() const override {
    int64_t sum = 0;
    for (const auto& encoding : encodings_) sum += encoding->numbers_per_token();
    return sum;
  }

  at::Tensor token_numbers(int64_t layer, const at::Tensor& hidden_BTC) const override {
    std::vector<at::Tensor> parts;
    for (const auto& encoding : encodings_) {
      if (encoding->numbers_per_token() > 0) parts.push_back(encoding->token_numbers(layer, hidden_BTC));
    }
    return parts.empty() ? at::Tensor() : at::cat(parts, -1);
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    Terms all;
    int64_t first = 0;
    for (size_t i = 0; i < encodings_.size(); ++i) {
      Projections own = projections;
      const int64_t numbers = encodings_[i]->numbers_per_token();
      own.token_numbers_BSN = numbers > 0 ? projections.token_numbers_BSN.narrow(-1, first, numbers) : at::Tensor();
      first += numbers;
      add_terms(all, encodings_[i]->terms(layer, shared.parts.at(i), own));
    }
    return all;
  }

 private:
  int64_t count(bool (Encoding::*is)() const) const {
    return std::count_if(encodings_.begin(), encodings_.end(), [&](const auto& each) { return (each.get()->*is)(); });
  }

  static void add(at::Tensor& sum, const at::Tensor& added) {
    if (added.defined()) sum = sum.defined() ? sum + added : added;
  }

  std::vector<std::shared_ptr<Encoding>> encodings_;
};

}  // namespace

std::shared_ptr<Encoding> combine_encodings(std::vector<std::shared_ptr<Encoding>> encodings) {
  return std::make_shared<Combined>(std::move(encodings));
}

}  // namespace rf::nn
