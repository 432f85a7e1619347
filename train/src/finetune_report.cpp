// The report as Markdown (finetune_report.h).
#include "finetune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "svg.h"

namespace rf::train {

namespace {

double value_of(const FinetuneRun& run, const std::string& metric) {
  const nlohmann::json& value = run.metrics.at(metric);
  return value.is_null() ? -std::numeric_limits<double>::infinity() : value.get<double>();
}

std::string number_text(const nlohmann::json& value) {
  return value.is_number_float() ? fmt::format("{:.4f}", value.get<double>()) : value.is_null() ? "-" : value.dump();
}

// One line per metric: the model on each split, compared with its baselines.
std::string metrics_table(const nlohmann::json& report) {
  const nlohmann::json& chosen = report.at("chosen");
  std::string head = "| metric |", rule = "|---|";
  std::vector<const nlohmann::json*> columns;
  for (const char* split : {"train", "valid", "test"}) {
    if (!chosen.contains(split)) continue;
    const auto add = [&](const std::string& title, const nlohmann::json& metrics) {
      head += fmt::format(" {} |", title);
      rule += "---:|";
      columns.push_back(&metrics);
    };
    add(split, chosen.at(split));
    if (!report.at("baseline").contains(split)) continue;  // no baseline for the train file
    add("baseline", report.at("baseline").at(split));
    if (report.contains("bag_of_words")) add("bag of words", report.at("bag_of_words").at(split));
  }
  std::string out = head + "\n" + rule + "\n";
  for (const auto& [name, value] : chosen.at("valid").items()) {
    out += fmt::format("| {} |", name);
    for (const nlohmann::json* metrics : columns) out += fmt::format(" {} |", number_text(metrics->at(name)));
    out += "\n";
  }
  return out;
}

std::string rates_table(const nlohmann::json& report) {
  std::string out = fmt::format("| learning rate | seeds | {} on valid: mean (lowest to highest) |\n|---:|---:|---|\n",
                                report.at("metric").get<std::string>());
  for (const nlohmann::json& rate : report.at("rates")) {
    out += fmt::format("| {:g} | {} | {} ({} to {}) |\n", rate.at("learning_rate").get<double>(),
                       rate.at("seeds").get<int64_t>(), number_text(rate.at("mean")), number_text(rate.at("low")),
                       number_text(rate.at("high")));
  }
  return out;
}

}  // namespace

std::vector<RateSummary> summaries(const std::vector<FinetuneRun>& runs, const std::string& metric) {
  std::vector<RateSummary> rates;
  for (size_t begin = 0, end = 0; begin < runs.size(); begin = end) {
    RateSummary rate{runs[begin].learning_rate, 0, value_of(runs[begin], metric), value_of(runs[begin], metric), begin};
    while (end < runs.size() && runs[end].learning_rate == rate.learning_rate) {
      const double value = value_of(runs[end], metric);
      rate.mean += value;
      rate.low = std::min(rate.low, value);
      if (value > rate.high) rate.best = end;
      rate.high = std::max(rate.high, value);
      ++end;
    }
    rate.mean /= static_cast<double>(end - begin);
    rates.push_back(rate);
  }
  return rates;
}

const RateSummary& best_rate(const std::vector<RateSummary>& rates) {
  return *std::max_element(rates.begin(), rates.end(),
                           [](const RateSummary& a, const RateSummary& b) { return a.mean < b.mean; });
}

std::string markdown_report(const nlohmann::json& report) {
  const nlohmann::json& chosen = report.at("chosen");
  std::string out = fmt::format("# {}\n\nFrom {}; learning rate {:g}, seed {}, step {}, chosen by {} on valid.\n\n",
                                report.at("task").get<std::string>(), report.at("model").get<std::string>(),
                                chosen.at("learning_rate").get<double>(), chosen.at("seed").get<uint64_t>(),
                                chosen.at("step").get<int64_t>(), report.at("metric").get<std::string>());
  out += metrics_table(report) + "\n" + rates_table(report) + "\n";
  out += fmt::format("- {} of the train records were measured\n", report.at("train_sample").get<int64_t>());
  for (const auto& [name, count] : report.at("records").items()) {
    out += fmt::format("- {}: {} records", name, count.get<int64_t>());
    const nlohmann::json& shared = report.at("shared_with_train");
    if (shared.contains(name)) out += fmt::format(", {} of them also in train", shared.at(name).get<int64_t>());
    out += "\n";
  }
  if (report.contains("confusion")) {
    out += fmt::format("- confusion.svg: classes of the {} records\n",
                       report.at("confusion").at("split").get<std::string>());
  }
  for (const nlohmann::json& warning : report.at("warnings")) out += fmt::format("- {}\n", warning.get<std::string>());
  return out;
}

std::string confusion_svg(const std::vector<std::string>& labels, const std::vector<std::vector<int64_t>>& counts) {
  constexpr double kCell = 44, kLeft = 160, kTop = 70, kMargin = 20;
  const auto shown = [](const std::string& label) {
    size_t end = std::min<size_t>(label.size(), 21);
    while (end < label.size() && (static_cast<unsigned char>(label[end]) & 0xC0) == 0x80) --end;
    return end < label.size() ? label.substr(0, end) + "..." : label;
  };
  const double side = kCell * static_cast<double>(labels.size());
  std::string cells = svg_text(kLeft + side / 2, 16, "middle", "predicted") + svg_text(8, kTop - 8, "start", "gold");
  for (size_t i = 0; i < counts.size(); ++i) {
    int64_t total = 0;
    for (const int64_t count : counts[i]) total += count;
    const double y = kTop + kCell * static_cast<double>(i), middle = kCell * (static_cast<double>(i) + 0.5);
    cells += svg_text(kLeft - 8, y + kCell / 2 + 4, "end", shown(labels[i]));
    cells += fmt::format("<g transform=\"translate({:.1f} {}) rotate(-30)\">{}</g>\n", kLeft + middle, kTop - 8,
                         svg_text(0, 0, "start", shown(labels[i])));
    for (size_t j = 0; j < counts[i].size(); ++j) {
      const double part = total == 0 ? 0 : static_cast<double>(counts[i][j]) / static_cast<double>(total);
      const double x = kLeft + kCell * static_cast<double>(j);
      cells += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"#0072B2\" fill-opacity=\"{:.3f}\" "
          "stroke=\"#ddd\"/>\n<g fill=\"{}\">{}</g>\n",
          x, y, kCell, kCell, part, part > 0.5 ? "white" : "black",
          svg_text(x + kCell / 2, y + kCell / 2 + 4, "middle", std::to_string(counts[i][j])));
    }
  }
  return svg_document(kLeft + side + 80, kTop + side + kMargin, cells);
}

}  // namespace rf::train
