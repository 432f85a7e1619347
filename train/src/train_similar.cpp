// Training on pairs of similar texts (rf/train/train_similar.h). Batches, masks and dropout are functions of the seed
// alone, so that a run that continues from a checkpoint has the same bits as one that was never interrupted.
#include "rf/train/train_similar.h"
#include "rf/data/identity.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "autocast.h"
#include "checkpoint_writer.h"
#include "cross_entropy.h"
#include "finetune_data.h"
#include "interrupt.h"
#include "metrics_log.h"
#include "optimizer.h"
#include "rf/data/random.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/model_types.h"
#include "rf/model/run_checkpoints.h"
#include "rf/nn/seed_scope.h"
#include "rf/nn/similarity_loss.h"
#include "rf/tasks/examples.h"
#include "rf/tasks/metrics.h"
#include "rf/train/run_directory.h"
#include "run_file.h"
#include "seconds.h"
#include "similar_batch.h"
#include "train_step.h"

namespace rf::train {

namespace {

constexpr const char* kWhere = "train-similar";
constexpr int64_t kLogEverySteps = 10, kEvaluationRows = 64;

// Sums since the last line of the metrics.
struct Losses {
  double generation = 0, similarity = 0, seconds = 0;
  int64_t steps = 0;
};

// Number of records that were too long for the rows.
struct CutRecords {
  int64_t count = 0;
  std::string first;  // its place

  void add(const data::Record& record) {
    if (count++ == 0) first = record.place();
  }
};

class SimilarRun {
 public:
  SimilarRun(const SimilarTraining& options, io::Progress& progress) : options_(options), progress_(progress) {}
  SimilarTrainingReport go() {
    check_options();
    read();
    steps_per_epoch_ = std::ssize(pairs_) / options_.batch;
    total_steps_ = options_.epochs * steps_per_epoch_;
    schedule_.kind = options_.schedule;
    schedule_.learning_rate = options_.learning_rate;
    schedule_.warmup_steps = std::llround(std::ceil(options_.warmup * static_cast<double>(total_steps_)));
    check_settings();
    if (is_finished()) {
      report_.is_complete = true;
      if (options_.note) options_.note("the run is finished already, in " + options_.output_dir);
      return report_;
    }
    open_model();
    const TokenizerFiles tokenizer_files(options_.model_dir);
    directory_->kept_settings("run.json", settings());  // once nothing is left to refuse
    metrics_.emplace(options_.output_dir + "/metrics.jsonl", step_, options_.note);
    if (options_.note) options_.note(plot_hint(options_.output_dir));
    const InterruptScope interrupt;
    {
      CheckpointWriter checkpoints(
          {.run_dir = options_.output_dir, .tokenizer = tokenizer_files, .sync = [this] { metrics_->sync(); }});
      if (!train(checkpoints, interrupt)) {
        report_.signal = interrupt.received();
        report_.steps = step_;
        return report_;
      }
    }
    finish(tokenizer_files);
    report_.signal = interrupt.received();
    report_.is_complete = true;
    return report_;
  }

 private:
  void check_options() const {
    static constexpr int64_t kMax = int64_t{1} << 30;
    const auto count = [](const char* name, int64_t value, int64_t least) {
      if (value < least || value > kMax) fail(kWhere, "{} must be from {} to {}, got {}", name, least, kMax, value);
    };
    count("epochs", options_.epochs, 1);
    count("batch", options_.batch, 2);  // a single pair lacks negatives
    count("max-length", options_.max_length, 3);
    const auto fraction = [](const char* name, double value, double most) {
      if (!(value >= 0 && value <= most)) fail(kWhere, "{} must be from 0 to {}, got {}", name, most, value);
    };
    fraction("mask", options_.mask, 1);
    if (!(options_.warmup >= 0 && options_.warmup < 1))
      fail(kWhere, "warmup must be in [0, 1), got {}", options_.warmup);
    const auto positive = [](const char* name, double value, bool may_be_0) {
      const bool fits = std::isfinite(value) && (value > 0 || (may_be_0 && value == 0));
      if (!fits)
        fail(kWhere, "{} must be {}, got {}", name,
             may_be_0 ? "a finite number of at least 0" : "a finite number above 0", value);
    };
    positive("learning-rate", options_.learning_rate, false);
    positive("weight-decay", options_.weight_decay, true);
    positive("clip-norm", options_.clip_norm, true);
  }

  // Reads everything, so that bad input is found before the first step.
  void read() {
    check_model_type(options_.model_dir, Opens::kEncoders);
    tokenizer_ = std::make_shared<const text::Tokenizer>(text::Tokenizer::load(options_.model_dir, options_.load));
    using text::SpecialRole;
    tokenizer_->vocabulary().require({SpecialRole::kPad, SpecialRole::kCls, SpecialRole::kSep, SpecialRole::kMask},
                                     kWhere);
    text::BatchEncoder encoder(
        *tokenizer_,
        {.truncation = text::Truncation::kLongestFirst, .max_length = 2 * options_.max_length, .threads = 1});
    std::vector<data::Record> records =
        tasks::read_records({options_.pairs, options_.format, options_.quotes}, "pairs");
    if (!options_.label.empty()) {
      const std::string& field = options_.columns.at("label");
      std::erase_if(records, [&](const data::Record& each) { return each.text(field) != options_.label; });
    }
    CutRecords cut_pairs, cut_valid;
    for (const data::Record& record : records) pairs_.push_back(pair_of(record, encoder, cut_pairs));
    note_cut(cut_pairs, "pairs", 2 * options_.max_length);
    report_.pairs = std::ssize(pairs_);
    if (std::ssize(pairs_) < options_.batch) {
      fail(kWhere, "there must be at least as many pairs as a batch has, {}, got {}{}", options_.batch, pairs_.size(),
           options_.label.empty() ? "" : " with the label " + options_.label);
    }
    identity_ = {{"pairs", records_identity(records)}};
    if (options_.valid.empty()) return;
    text::BatchEncoder single(
        *tokenizer_, {.truncation = text::Truncation::kLongestFirst, .max_length = options_.max_length, .threads = 1});
    const auto valid = tasks::read_records({options_.valid, options_.format, options_.quotes}, "valid");
    valid_identity_ = {{"records", records_identity(valid)}, {"columns", options_.columns}};
    for (const data::Record& record : valid) {
      for (const char* column : {"text", "pair"}) {
        const std::string text = record.text(options_.columns.at(column));
        const text::TextPair of_row{text};
        const text::Row& row = single.encode({&of_row, 1}).front();
        if (is_cut(row, options_.max_length, {&text, 1})) cut_valid.add(record);
        valid_texts_.push_back(row.tokens.ids);
      }
      valid_labels_.push_back(record.number(options_.columns.at("label")));
    }
    note_cut(cut_valid, "texts of --valid", options_.max_length);
  }

  SimilarPair pair_of(const data::Record& record, text::BatchEncoder& encoder, CutRecords& cut) const {
    const std::string texts[] = {record.text(options_.columns.at("text")), record.text(options_.columns.at("pair"))};
    SimilarPair pair;
    for (size_t side = 0; side < 2; ++side) {
      const text::TextPair of_row{texts[side], texts[1 - side]};
      const text::Row& row = encoder.encode({&of_row, 1}).front();
      pair.rows[side] = {row.tokens.ids, row.types, row.tokens.starts_word};
      bool has_text[2] = {};
      for (const int8_t text : row.text_index) {
        if (text >= 0) has_text[text] = true;
      }
      if (side == 0 && is_cut(row, 2 * options_.max_length, texts)) cut.add(record);
      if (!has_text[0] || !has_text[1]) {
        fail(kWhere, "{}: both texts must have at least one token, got none in one of them", record.place());
      }
    }
    return pair;
  }

  // Whether a row of at most `max_length` tokens lacks some tokens of its texts.
  bool is_cut(const text::Row& row, int64_t max_length, std::span<const std::string> texts) const {
    if (std::ssize(row.tokens.ids) < max_length) return false;
    text::Encoding all;
    for (const std::string& text : texts) tokenizer_->encode_first(text, static_cast<size_t>(max_length), all);
    return std::ranges::count_if(row.text_index, [](int8_t text) { return text >= 0; }) < std::ssize(all.ids);
  }

  void note_cut(const CutRecords& cut, const char* what, int64_t max_length) const {
    if (cut.count == 0 || !options_.note) return;
    options_.note(
        fmt::format("{} {} of more than {} tokens are cut, the first in {}", cut.count, what, max_length, cut.first));
  }

  void open_model() {
    const std::optional<std::string> checkpoint = newest_checkpoint(options_.output_dir);
    if (checkpoint) {
      model_ = nn::load_model(*checkpoint, Head::kCausalLm, at::kFloat);
    } else {
      ModelConfig config = load_config(options_.model_dir);
      config.is_decoder = config.prefix_lm = true;
      config.architectures.clear();
      parse_config(to_json(config));  // its rules
      const nn::SeedScope drawn(options_.seed);
      model_ = nn::load_model(options_.model_dir, config, Head::kCausalLm, at::kFloat, FreshHead::kAllowed);
    }
    if (model_->config().vocab_size < tokenizer_->vocabulary().size()) {
      fail(kWhere, "vocab_size of {} must be at least its vocabulary's {}, got {}", options_.model_dir,
           tokenizer_->vocabulary().size(), model_->config().vocab_size);
    }
    tasks::check_length(*model_, 2 * options_.max_length);
    model_->train();
    optimizer_.emplace(trained_parameters(*model_),
                       AdamWOptions{.weight_decay = options_.weight_decay, .clip_norm = options_.clip_norm});
    if (checkpoint) resume(*checkpoint);
  }

  nlohmann::json settings() const {
    return {{"similar", identity_},
            {"columns", {{"text", options_.columns.at("text")}, {"pair", options_.columns.at("pair")}}},
            {"model", data::model_identity(options_.model_dir, options_.load)},
            {"epochs", options_.epochs},
            {"batch", options_.batch},
            {"max_length", options_.max_length},
            {"mask", options_.mask},
            {"learning_rate", options_.learning_rate},
            {"schedule", name_of(kSchedules, options_.schedule)},
            {"warmup", options_.warmup},
            {"weight_decay", options_.weight_decay},
            {"clip_norm", options_.clip_norm},
            {"precision", name_of(kPrecisions, options_.precision)},
            {"seed", options_.seed}};
  }

  void check_settings() {
    directory_.emplace(options_.output_dir, RunDirectory::Use::kResume);
    const nlohmann::json now = settings();
    const nlohmann::json before = directory_->settings_or("run.json", now);
    if (!before.contains("similar")) {
      fail(kWhere, "the output must be a directory of train-similar, got {}, which holds another kind of run",
           options_.output_dir);
    }
    if (const std::string difference = data::first_difference(before, now); !difference.empty()) {
      fail(kWhere, "the settings must be those of the run in {}, got {}", options_.output_dir, difference);
    }
  }

  std::string report_path() const { return options_.output_dir + "/report.json"; }

  // Whether an earlier call finished the run; its report is then returned, but other held-out pairs are evaluated.
  bool is_finished() {
    if (!io::has_file(report_path())) return false;
    const nlohmann::json kept = io::read_json(report_path());
    const nlohmann::json& spearman = kept.at("spearman");
    report_.steps = kept.at("steps");
    report_.generation_loss = kept.at("generation_loss");
    report_.similarity_loss = kept.at("similarity_loss");
    if (!spearman.is_null()) report_.spearman = spearman;
    if (!valid_identity_.is_null() && kept.value("valid", nlohmann::json()) != valid_identity_) {
      model_ = nn::load_model(options_.output_dir, Head::kCausalLm, at::kFloat);
      step_ = report_.steps;
      metrics_.emplace(options_.output_dir + "/metrics.jsonl", step_, options_.note);
      evaluate(options_.epochs - 1);
      write_report();
    }
    drop_checkpoints(options_.output_dir, 0);
    return true;
  }

  void finish(const TokenizerFiles& tokenizer_files) {
    nn::save_model(*model_, options_.output_dir);
    tokenizer_files.write(options_.output_dir);
    tokenizer_->save_dictionary(options_.output_dir);
    report_.steps = step_;
    write_report();
    drop_checkpoints(options_.output_dir, 0);
  }

  void write_report() const {
    const nlohmann::json report = {{"steps", report_.steps},
                                   {"generation_loss", report_.generation_loss},
                                   {"similarity_loss", report_.similarity_loss},
                                   {"spearman", tasks::number_or_null(report_.spearman)},
                                   {"valid", valid_identity_}};
    io::write_file(report_path(), report.dump(2) + "\n");
  }

  void resume(const std::string& checkpoint) {
    load_state(checkpoint, [&](io::StrictObject& state) {
      state.require({"step", "updates", "interval", "last"});
      step_ = state.integer("step", 0, 0, total_steps_);
      optimizer_->set_updates(state.integer("updates", 0, 0, INT64_MAX));
      io::StrictObject interval = state.object("interval");
      losses_.generation = interval.number("generation", 0, kAnyNumber);
      losses_.similarity = interval.number("similarity", 0, kAnyNumber);
      losses_.steps = interval.integer("steps", 0, 0, INT64_MAX);
      io::StrictObject last = state.object("last");
      report_.generation_loss = last.number("generation", 0, kAnyNumber);
      report_.similarity_loss = last.number("similarity", 0, kAnyNumber);
    });
    load_moments(checkpoint, *optimizer_);
    if (options_.note) options_.note(fmt::format("continuing at step {} of {}", step_, total_steps_));
  }

  void checkpoint_now(CheckpointWriter& checkpoints) {
    checkpoints.begin(
        *model_, *optimizer_,
        {{"step", step_},
         {"updates", optimizer_->updates()},
         {"interval",
          {{"generation", losses_.generation}, {"similarity", losses_.similarity}, {"steps", losses_.steps}}},
         {"last", {{"generation", report_.generation_loss}, {"similarity", report_.similarity_loss}}}});
  }

  // False if a signal ended it early.
  bool train(CheckpointWriter& checkpoints, const InterruptScope& interrupt) {
    std::vector<int64_t> indices(static_cast<size_t>(options_.batch));
    while (step_ < total_steps_) {
      if (interrupt.received() != 0) {
        checkpoint_now(checkpoints);
        checkpoints.finish();
        return false;
      }
      if (checkpoints.is_done()) checkpoints.go_on();
      const int64_t epoch = step_ / steps_per_epoch_, first = step_ % steps_per_epoch_ * options_.batch;
      const data::Permutation order(std::ssize(pairs_), options_.seed, data::Stream::kExampleOrder, epoch);
      for (int64_t i = 0; i < options_.batch; ++i) indices[static_cast<size_t>(i)] = order(first + i);
      step(epoch, indices);
      const bool epoch_ends = step_ % steps_per_epoch_ == 0;
      if (epoch_ends || step_ % kLogEverySteps == 0) log(epoch);
      if (!epoch_ends) continue;
      evaluate(epoch);
      if (step_ < total_steps_) checkpoint_now(checkpoints);
    }
    checkpoints.finish();
    return true;
  }

  void step(int64_t epoch, std::span<const int64_t> indices) {
    const double start = now_seconds();
    const SimilarMasking masking{
        .rows = options_.mask, .seed = options_.seed, .epoch = epoch, .vocabulary = &tokenizer_->vocabulary()};
    SimilarBatch batch = similar_batch(pairs_, indices, masking, model_->config().pad_token_id);
    batch.input.dropout_key = nn::DropoutKey{options_.seed, static_cast<uint64_t>(step_ + 1)};
    double generation = 0, similarity = 0;
    {
      const AutocastScope autocast(options_.precision);
      const at::Tensor hidden_BTC = model_->encode(batch.input);
      const at::Tensor similarity_loss = nn::similarity_loss(model_->pooled(hidden_BTC).to(at::kFloat));
      const at::Tensor logits_NV = model_->masked_lm_logits(hidden_BTC.flatten(0, 1).index_select(0, batch.tokens_N));
      const double targets = static_cast<double>(batch.labels_N.size(0));
      const at::Tensor generation_loss = scaled_cross_entropy(logits_NV.contiguous(), batch.labels_N, 1 / targets);
      similarity = similarity_loss.item<double>();
      generation = generation_loss.item<double>();
      if (std::isfinite(similarity + generation)) (similarity_loss + generation_loss).backward();
    }
    if (!std::isfinite(similarity + generation)) {
      fail(kWhere, "the losses must be finite, got {} of generation and {} of similarity at step {}; try a lower rate",
           generation, similarity, step_ + 1);
    }
    rate_ = learning_rate(schedule_, step_ + 1, total_steps_);
    gradient_norm_ = optimizer_->step(rate_, step_ + 1);
    optimizer_->drop_gradients();
    ++step_;
    losses_.generation += generation;
    losses_.similarity += similarity;
    losses_.seconds += now_seconds() - start;
    ++losses_.steps;
    progress_.update(
        fmt::format("step {}/{}  generation {:.3f}  similarity {:.3f}", step_, total_steps_, generation, similarity));
  }

  void log(int64_t epoch) {
    const auto steps = static_cast<double>(losses_.steps);
    report_.generation_loss = losses_.generation / steps;
    report_.similarity_loss = losses_.similarity / steps;
    metrics_->append({{"type", "train"},
                      {"step", step_},
                      {"epoch", epoch + 1},
                      {"loss", report_.generation_loss + report_.similarity_loss},
                      {"generation_loss", report_.generation_loss},
                      {"similarity_loss", report_.similarity_loss},
                      {"learning_rate", rate_},
                      {"gradient_norm", gradient_norm_},
                      {"seconds", losses_.seconds}});
    losses_ = {};
  }

  // The rank correlation of cosines with the labels of the valid file.
  void evaluate(int64_t epoch) {
    if (valid_texts_.empty()) return;
    const c10::NoGradGuard no_grad;
    model_->eval();
    const at::Tensor vectors = vectors_of(valid_texts_).to(at::kDouble).view({std::ssize(valid_labels_), 2, -1});
    model_->train();
    const at::Tensor cosines = at::cosine_similarity(vectors.select(1, 0), vectors.select(1, 1)).contiguous();
    report_.spearman =
        tasks::spearman(valid_labels_, {cosines.const_data_ptr<double>(), static_cast<size_t>(cosines.size(0))});
    metrics_->append({{"type", "evaluation"},
                      {"step", step_},
                      {"epoch", epoch + 1},
                      {"spearman", tasks::number_or_null(report_.spearman)}});
    progress_.message(fmt::format("step {}  spearman {:.4f}", step_, report_.spearman));
  }

  // The pooler's vectors of texts, [texts, C] float32.
  at::Tensor vectors_of(std::span<const std::vector<int32_t>> texts) const {
    std::vector<at::Tensor> vectors;
    for (size_t first = 0; first < texts.size(); first += kEvaluationRows) {
      const auto part = texts.subspan(first, std::min<size_t>(kEvaluationRows, texts.size() - first));
      int64_t length = 0;
      for (const std::vector<int32_t>& ids : part) length = std::max(length, std::ssize(ids));
      const int64_t rows = std::ssize(part);
      nn::Input input;
      input.ids_BT = at::full({rows, length}, model_->config().pad_token_id, at::kLong);
      input.mask_BT = at::zeros({rows, length}, at::kBool);
      for (int64_t i = 0; i < rows; ++i) {
        const std::vector<int32_t>& ids = part[static_cast<size_t>(i)];
        std::copy(ids.begin(), ids.end(), input.ids_BT.mutable_data_ptr<int64_t>() + i * length);
        std::fill_n(input.mask_BT.mutable_data_ptr<bool>() + i * length, ids.size(), true);
      }
      vectors.push_back(model_->pooled(model_->encode(input)));
    }
    return at::cat(vectors);
  }

  const SimilarTraining& options_;
  io::Progress& progress_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<SimilarPair> pairs_;
  std::vector<std::vector<int32_t>> valid_texts_;  // 2 for each record
  std::vector<double> valid_labels_;
  nlohmann::json identity_, valid_identity_;  // the latter is null without held-out pairs
  std::optional<RunDirectory> directory_;
  std::shared_ptr<nn::Model> model_;
  std::optional<AdamW> optimizer_;
  std::optional<MetricsLog> metrics_;
  ScheduleConfig schedule_;
  int64_t steps_per_epoch_ = 0, total_steps_ = 0, step_ = 0;
  double rate_ = 0, gradient_norm_ = 0;
  Losses losses_;
  SimilarTrainingReport report_{.spearman = std::numeric_limits<double>::quiet_NaN()};
};

}  // namespace

SimilarTrainingReport train_similar(const SimilarTraining& options, io::Progress& progress) {
  return SimilarRun(options, progress).go();
}

}  // namespace rf::train
