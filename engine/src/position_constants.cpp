// Terms that are constants of the checkpoint (position_parts.h).
#include <algorithm>
#include <utility>

#include "position_parts.h"
#include "rf/attention_terms.h"
#include "rf/io/error.h"

namespace rf::engine {

namespace {

using Term = PositionTerms::Term;

void set_table(const Term& term, bool has_width, rf_attention_table& table) {
  table = {term.values.data(), term.lo, term.hi, term.shape[0], has_width ? term.shape[2] : 1};
}

// The members of `args` that a layer's terms are.
void set_members(const PositionTerms& terms, size_t layer, rf_attention_args& args) {
  const auto find = [&](const char* name) -> const Term* {
    for (const PositionTerms::Terms* of : {&terms.shared, &terms.layers[layer]}) {
      if (const auto found = of->find(name); found != of->end()) return &found->second;
    }
    return nullptr;
  };
#define RF_SET_TABLE(name, ...) \
  if (const Term* term = find(#name)) set_table(*term, term->shape.size() == 3, args.name);
#define RF_SET_NUMBERS(name, ...) \
  if (const Term* term = find(#name)) args.name = term->values.data();
#define RF_SET_PAIR(query_name, query_symbol, key_name, ...) \
  RF_SET_NUMBERS(query_name)                                 \
  if (const Term* term = find(#key_name)) {                  \
    args.key_name = term->values.data();                     \
    args.positions = term->shape[1];                         \
  }
  RF_ATTENTION_TERMS(RF_NO_TERM, RF_SET_TABLE, RF_SET_NUMBERS, RF_SET_PAIR, RF_NO_TERM)
#undef RF_SET_TABLE
#undef RF_SET_NUMBERS
#undef RF_SET_PAIR
}

// Copies the terms that `from` has.
void copy_members(const rf_attention_args& from, rf_attention_args& to) {
#define RF_COPY_TABLE(name, ...) \
  if (from.name.rows != nullptr) to.name = from.name;
#define RF_COPY_NUMBERS(name, ...) \
  if (from.name != nullptr) to.name = from.name;
#define RF_COPY_PAIR(query_name, query_symbol, key_name, ...) \
  RF_COPY_NUMBERS(query_name)                                 \
  RF_COPY_NUMBERS(key_name)
  RF_ATTENTION_TERMS(RF_NO_TERM, RF_COPY_TABLE, RF_COPY_NUMBERS, RF_COPY_PAIR, RF_NO_TERM)
#undef RF_COPY_TABLE
#undef RF_COPY_NUMBERS
#undef RF_COPY_PAIR
  if (from.positions > 0) to.positions = from.positions;
}

class ConstantTerms : public Position {
 public:
  ConstantTerms(const PositionTerms& terms, int64_t layers, std::shared_ptr<const void> owner, std::string model_dir)
      : tokens_(terms.tokens),
        longest_(terms.longest),
        scale_(terms.scale),
        owner_(std::move(owner)),
        model_dir_(std::move(model_dir)),
        layers_(static_cast<size_t>(layers), rf_attention_args{}) {
    for (size_t i = 0; i < layers_.size(); ++i) set_members(terms, i, layers_[i]);
  }

  void check(const Sequences& sequences) const override {
    for (int64_t i = 0; i < sequences.count; ++i) {
      const int64_t begin = sequences.cu_seqlens[i], end = sequences.cu_seqlens[i + 1];
      if (begin == end) continue;
      const auto [first, last] = std::minmax_element(sequences.positions + begin, sequences.positions + end);
      // Rows by distance are reached from anywhere; those by position are not.
      check_length(layers_[0].positions > 0 ? *last + 1 : *last - *first + 1);
    }
  }

  void set_terms(int64_t layer, const PositionRows&, rf_attention_args& args) const override {
    copy_members(layers_[static_cast<size_t>(layer)], args);
    if (scale_) args.scale = *scale_;
  }

 private:
  void check_length(int64_t tokens) const {
    if (tokens > longest_) {
      fail("position", "a sequence must have at most the {} positions that the encoding reads, got {}", longest_,
           tokens);
    }
    if (tokens > tokens_) {
      fail("position", "a sequence must have at most the {} positions of {}, got {}; {}", tokens_, kPositionTermsFile,
           tokens, bake_command(model_dir_, tokens));
    }
  }

  int64_t tokens_, longest_;
  std::optional<double> scale_;
  std::shared_ptr<const void> owner_;
  std::string model_dir_;
  std::vector<rf_attention_args> layers_;  // terms alone
};

}  // namespace

std::unique_ptr<Position> make_constant_terms(const PositionTerms& terms, int64_t layers,
                                              std::shared_ptr<const void> owner, std::string model_dir) {
  return std::make_unique<ConstantTerms>(terms, layers, std::move(owner), std::move(model_dir));
}

}  // namespace rf::engine
