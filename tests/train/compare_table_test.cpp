// Tables of a comparison, against text written by hand; and how arms are written.
#include "compare_table.h"

#include <gtest/gtest.h>

#include "rf/io/error.h"

namespace rf::train {
namespace {

CompareReport small_report() {
  CompareReport report;
  report.lengths = {8, 16};
  report.runs = {
      {.arm = "rope", .seed = 1, .parameters = 10, .step_ms = 2.5, .peak_bytes = 3 << 20, .losses = {1.25, 1.5}},
      {.arm = "rope", .seed = 2, .parameters = 10, .step_ms = 3.5, .peak_bytes = 2 << 20, .losses = {1.75, 1.5}},
      {.arm = "shaw:a=1,2", .seed = 1, .parameters = 12, .step_ms = 4, .peak_bytes = 0, .losses = {2, {}}}};
  report.runs[0].seconds = 0.25, report.runs[0].tokens = 100;
  report.runs[1].seconds = 0.5, report.runs[1].tokens = 150;
  return report;
}

TEST(CompareTable, Csv) {
  EXPECT_EQ(csv_table(small_report()),
            "encoding,seed,parameters,step_ms,peak_bytes,seconds,tokens_per_second,diverged_at_step,loss_8,loss_16\n"
            "rope,1,10,2.500,3145728,0.250,400.0,,1.250000,1.500000\n"
            "rope,2,10,3.500,2097152,0.500,300.0,,1.750000,1.500000\n"
            "\"shaw:a=1,2\",1,12,4.000,0,0.000,0.0,,2.000000,\n");
}

TEST(CompareTable, MarkdownHasMeanAndSpread) {
  EXPECT_EQ(markdown_table(small_report()),
            "| encoding | parameters | ms per step | tokens/s | peak MiB | loss at 8 tokens | loss at 16 tokens |\n"
            "|---|---:|---:|---:|---:|---|---|\n"
            "| rope | 10 | 3.0 | 350 | 3 | 1.500 (1.250 to 1.750) | 1.500 (1.500 to 1.500) |\n"
            "| shaw:a=1,2 | 12 | 4.0 | 0 | 0 | 2.000 | - |\n");
}

TEST(CompareArms, SplitOutsideBrackets) {
  EXPECT_EQ(split_arms("none,rope:rope_parameters={\"a\":1,\"b\":[1,2]},t5"),
            (std::vector<std::string>{"none", "rope:rope_parameters={\"a\":1,\"b\":[1,2]}", "t5"}));
}

TEST(CompareArms, KeysAreJson) {
  EXPECT_EQ(parse_arm("rope"), (EncodingConfig{"rope", "{}"}));
  EXPECT_EQ(parse_arm("x:n=16:on=false:word=halves:o={\"k\":[1,2]}"),
            (EncodingConfig{"x", "{\"n\":16,\"o\":{\"k\":[1,2]},\"on\":false,\"word\":\"halves\"}"}));
}

TEST(CompareArms, MalformedKeysAreRefused) {
  for (const char* text : {"", ":a=1", "x:a", "x:=1", "x:a=1:a=2"}) EXPECT_THROW(parse_arm(text), Error) << text;
}

}  // namespace
}  // namespace rf::train
