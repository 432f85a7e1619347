#include "sentence_vectors.h"

#include <ATen/ATen.h>

#include <memory>

#include "rf/nn/model.h"
#include "rf/text/batch.h"
#include "rf/text/tokenizer.h"
#include "statistics.h"

namespace rf::reproduce {

namespace {

class Vectors {
 public:
  Vectors(const std::string& model_dir, SentenceVector vector, int64_t max_length)
      : tokenizer_(text::Tokenizer::load(model_dir, {})),
        encoder_(tokenizer_, {.truncation = text::Truncation::kLongestFirst, .max_length = max_length, .threads = 1}),
        vector_(vector) {
    if (vector == SentenceVector::kTokenCounts) return;
    const Head head = vector == SentenceVector::kPooler ? Head::kCausalLm : Head::kNone;
    model_ = nn::load_model(model_dir, head, at::kFloat);
    model_->eval();
  }

  at::Tensor of(const std::string& words) {
    const text::TextPair sample{words};
    const at::Tensor ids_T = at::tensor(encoder_.encode({&sample, 1}).front().tokens.ids, at::kLong);
    if (vector_ == SentenceVector::kTokenCounts) {
      const at::Tensor own = ids_T.slice(0, 1, -1);  // without [CLS] and [SEP]
      return at::bincount(own, {}, tokenizer_.vocabulary().size()).to(at::kDouble);
    }
    nn::Input input;
    input.ids_BT = ids_T.unsqueeze(0);
    const at::Tensor hidden_1TC = model_->encode(input);
    switch (vector_) {
      case SentenceVector::kFirstToken:
        return hidden_1TC[0][0].to(at::kDouble);
      case SentenceVector::kPooler:
        return model_->pooled(hidden_1TC)[0].to(at::kDouble);
      default:
        return hidden_1TC[0].mean(0).to(at::kDouble);
    }
  }

 private:
  text::Tokenizer tokenizer_;
  text::BatchEncoder encoder_;
  SentenceVector vector_;
  std::shared_ptr<nn::Model> model_;
};

}  // namespace

std::vector<JudgedPair> judged_pairs(const data::RecordOptions& file, const PairFields& fields) {
  std::vector<JudgedPair> pairs;
  data::RecordReader(file).read([&](data::Record& record) {
    pairs.push_back({record.text(fields.text), record.text(fields.pair), record.number(fields.label)});
  });
  return pairs;
}

double correlation_of_cosines(const std::string& model_dir, SentenceVector vector, const std::vector<JudgedPair>& pairs,
                              int64_t max_length) {
  const at::NoGradGuard no_grad;
  Vectors vectors(model_dir, vector, max_length);
  std::vector<double> cosines, labels;
  for (const JudgedPair& each : pairs) {
    cosines.push_back(at::cosine_similarity(vectors.of(each.text), vectors.of(each.pair), 0).item<double>());
    labels.push_back(each.label);
  }
  return spearman(cosines, labels);
}

}  // namespace rf::reproduce
