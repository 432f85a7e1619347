# cmake -DSOURCE=<repository> -DOUTPUT=<header> -P commit.cmake: kCommit, with the suffix -dirty if files differ (the
# pages that contain tables of figures do not count), "unknown" outside a repository. The header is written only if the
# text changes.
cmake_minimum_required(VERSION 3.25)
execute_process(
  COMMAND git -C "${SOURCE}" rev-parse --short=12 HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
execute_process(
  COMMAND git -C "${SOURCE}" diff --quiet HEAD -- . ":!docs/benchmarks"
  OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE changed)
if(failed)
  set(commit unknown)
elseif(changed)
  string(APPEND commit -dirty)
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "inline constexpr char kCommit[] = \"@commit@\";\n" @ONLY)
