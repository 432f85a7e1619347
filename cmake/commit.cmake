# cmake -DSOURCE=<repository> -DOUTPUT=<header> -P commit.cmake: kCommit, "unknown" outside a repository. The header is
# touched only when the commit is another.
execute_process(
  COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "inline constexpr char kCommit[] = \"@commit@\";\n" @ONLY)
