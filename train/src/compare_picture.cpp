// The picture of a comparison as SVG (compare_table.h): one row per arm, one dot per run, one colour per length;
// further left is better. Losses beyond twice the span of the losses at the training length are drawn as arrows at the
// edge.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "compare_table.h"
#include "svg.h"

namespace rf::train {

namespace {

constexpr double kRow = 26, kLeft = 220, kPlot = 520, kTop = 48, kBottom = 44, kRight = 30;
// Colours that colour-blind readers can distinguish (Okabe and Ito).
constexpr std::array kColours = {"#0072B2", "#E69F00", "#CC79A7", "#009E73", "#56B4E9", "#D55E00"};

struct Axis {
  double low = 0, high = 1;
  double x(double value) const { return kLeft + kPlot * (value - low) / (high - low); }
};

Axis axis_of(const CompareReport& report) {
  double low = INFINITY, high = -INFINITY, all_high = -INFINITY;
  for (const CompareRun& run : report.runs) {
    for (size_t i = 0; i < run.losses.size(); ++i) {
      if (!run.losses[i]) continue;
      low = std::min(low, *run.losses[i]);
      all_high = std::max(all_high, *run.losses[i]);
      if (i == 0) high = std::max(high, *run.losses[i]);
    }
  }
  if (!(low <= all_high)) return {};
  if (!(high >= low)) high = all_high;
  const double span = std::max(high - low, 0.01);
  const double edge = std::min(all_high, high + span);
  return {low - 0.05 * span, edge + 0.05 * span};
}

// A step of 1, 2 or 5 times a power of ten that gives four to ten ticks.
double tick_step(double span) {
  const double power = std::pow(10.0, std::floor(std::log10(span / 4)));
  for (const double factor : {5.0, 2.0}) {
    if (span / (factor * power) >= 4) return factor * power;
  }
  return power;
}

std::string mark(const Axis& axis, double loss, double y, const char* colour) {
  if (loss <= axis.high)
    return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n", axis.x(loss), y, colour);
  const double x = kLeft + kPlot;
  return fmt::format("<path d=\"M{:.1f} {:.1f} l8 4 l-8 4 z\" fill=\"{}\"><title>{:.3f}</title></path>\n", x, y - 4,
                     colour, loss);
}

std::string grid(const Axis& axis, double bottom) {
  std::string out;
  const double step = tick_step(axis.high - axis.low);
  for (double tick = std::ceil(axis.low / step) * step; tick <= axis.high; tick += step) {
    out += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#ddd\"/>\n", axis.x(tick),
                       kTop, bottom);
    out += svg_text(axis.x(tick), bottom + 16, "middle", fmt::format("{:.4g}", tick));
  }
  return out + svg_text(kLeft + kPlot / 2, bottom + 34, "middle", "held-out loss, nats per token");
}

std::string legend(const CompareReport& report) {
  std::string out;
  for (size_t i = 0; i < report.lengths.size(); ++i) {
    const double x = kLeft + 120.0 * static_cast<double>(i);
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"24\" r=\"4\" fill=\"{}\"/>\n", x, kColours[i % kColours.size()]);
    out += svg_text(x + 10, 28, "start", fmt::format("{} tokens", report.lengths[i]));
  }
  return out;
}

}  // namespace

std::string svg_picture(const CompareReport& report) {
  const Axis axis = axis_of(report);
  std::string rows;
  double y = kTop - kRow / 2;
  const std::string* arm = nullptr;
  for (const CompareRun& run : report.runs) {
    if (arm == nullptr || *arm != run.arm) {
      arm = &run.arm;
      y += kRow;
      rows += svg_text(kLeft - 12, y + 4, "end", run.arm);
    }
    for (size_t i = run.losses.size(); i-- > 0;) {
      if (run.losses[i]) rows += mark(axis, *run.losses[i], y, kColours[i % kColours.size()]);
    }
  }
  const double bottom = y + kRow / 2;
  return svg_document(kLeft + kPlot + kRight, bottom + kBottom, legend(report) + grid(axis, bottom) + rows);
}

}  // namespace rf::train
