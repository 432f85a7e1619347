# rf_precompile(<target> <header>...): headers that are parsed once for the target instead of once per file, which halves
# the compiler's time in a file that includes torch. ccache needs the option, and the sloppiness in the preset.
function(rf_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  target_compile_options(${target} PRIVATE -fpch-preprocess)
endfunction()

# rf_module(<name> [SHARED] SOURCES ... LINKS ... [PRIVATE_LINKS ...] [PRECOMPILED <header>...] [UNITY <files>]
#   [EXPORTS <file>])
# A module is a library rf_<name>, alias rf::<name>, whose public headers live in <name>/include. Only what it links is
# on its include path, so a header of a module it may not use does not compile. EXPORTS is for libraries that programs
# of others link: a linker's version script with the symbols that they may use. Such a library has a soname; while the
# major version is 0, each minor version may change the interface.
add_library(rf_warnings INTERFACE)
target_compile_options(rf_warnings INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion
  $<$<BOOL:${ROFORMER_WARNINGS_AS_ERRORS}>:-Werror>)
if(ROFORMER_SANITIZE)
  add_compile_options(-fsanitize=${ROFORMER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ROFORMER_SANITIZE})
endif()

# rf_unity(<target> <files>): the compiler reads so many files of a target as one, because what the headers of torch cost
# for each file, precompiled or not, is most of its time. Names in anonymous namespaces are then shared by the files of a
# group. With -DROFORMER_UNITY=OFF each file is compiled alone, which is faster for someone who changes one.
option(ROFORMER_UNITY "Compile several source files of a module at once" ON)
function(rf_unity target files)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ROFORMER_UNITY} UNITY_BUILD_BATCH_SIZE ${files})
  # g++ 12 sees accesses beyond a tensor in torch's headers where it inlines more.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
endfunction()
# rf_unity_group(<name> <file>...): these are read as one, where the names of others would collide with theirs.
function(rf_unity_group name)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${name})
endfunction()

function(rf_module name)
  cmake_parse_arguments(MODULE "SHARED" "EXPORTS;UNITY" "SOURCES;LINKS;PRIVATE_LINKS;PRECOMPILED" ${ARGN})
  set(kind STATIC)
  if(MODULE_SHARED)
    set(kind SHARED)
  endif()
  add_library(rf_${name} ${kind} ${MODULE_SOURCES})
  add_library(rf::${name} ALIAS rf_${name})
  set_target_properties(rf_${name} PROPERTIES OUTPUT_NAME roformer_${name})
  target_include_directories(rf_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(rf_${name} PUBLIC ${MODULE_LINKS} PRIVATE rf_warnings ${MODULE_PRIVATE_LINKS})
  if(MODULE_PRECOMPILED)
    rf_precompile(rf_${name} ${MODULE_PRECOMPILED})
  endif()
  if(MODULE_UNITY)
    rf_unity(rf_${name} ${MODULE_UNITY})
  endif()
  if(MODULE_EXPORTS)
    set(script ${CMAKE_CURRENT_SOURCE_DIR}/${MODULE_EXPORTS})
    target_link_options(rf_${name} PRIVATE LINKER:--version-script=${script})
    set_target_properties(rf_${name} PROPERTIES LINK_DEPENDS ${script} VERSION ${PROJECT_VERSION}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  endif()
endfunction()

# rf_test(<module> SOURCES ... LINKS ... [PRECOMPILED <header>...] [UNITY <files>]): one GoogleTest binary per module,
# build/<preset>/tests/<module>_test. The list of them, tests/programs.txt in the build, is what scripts/run_tests.py
# expects.
function(rf_test module)
  cmake_parse_arguments(T "" "UNITY" "SOURCES;LINKS;PRECOMPILED" ${ARGN})
  add_executable(rf_${module}_test ${T_SOURCES})
  set_target_properties(rf_${module}_test PROPERTIES OUTPUT_NAME ${module}_test RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_include_directories(rf_${module}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(rf_${module}_test PRIVATE rf_warnings ${T_LINKS} GTest::gtest GTest::gtest_main)
  if(T_PRECOMPILED)
    rf_precompile(rf_${module}_test <gtest/gtest.h> ${T_PRECOMPILED})
  endif()
  if(T_UNITY)
    rf_unity(rf_${module}_test ${T_UNITY})
  endif()
  add_test(NAME ${module} COMMAND rf_${module}_test)
  set_property(GLOBAL APPEND_STRING PROPERTY rf_test_programs "${module}_test\n")
endfunction()
