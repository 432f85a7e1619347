# rf_module(<name> [SHARED] [TORCH_HEADERS] [CONTROL] SOURCES ... LINKS ... [PRIVATE_LINKS ...] [UNITY] [EXPORTS <file>])
# TORCH_HEADERS: its files use the precompiled headers of torch (torch.cmake). UNITY: rf_unity. CONTROL: it has no loops
# over tokens or numbers, and -O1 compiles it in two thirds of the time. A module is a library rf_<name>, alias
# rf::<name>, whose public headers live in <name>/include. Only modules that it links are on its include path, so
# including a header of another module does not compile. EXPORTS is for libraries that other programs link: a linker
# version script with the symbols that they may use. Such a library has a soname; while the major version is 0, each
# minor version may change the interface.
add_library(rf_warnings INTERFACE)
target_compile_options(rf_warnings INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion
  $<$<BOOL:${ROFORMER_WARNINGS_AS_ERRORS}>:-Werror>)
if(ROFORMER_SANITIZE)
  add_compile_options(-fsanitize=${ROFORMER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(ROFORMER_SANITIZE MATCHES address)
    # The address sanitizer reports most of what these checks find, and they take a seventh of the compile time.
    add_compile_options(-fno-sanitize=null,object-size,vptr)
  endif()
  # Checks make functions long, and g++ then spends half its time on allocating registers.
  add_compile_options("$<$<CXX_COMPILER_ID:GNU>:-fira-algorithm=priority;-fira-region=one>")
  add_compile_definitions(XXH_NO_INLINE_HINTS=1)  # g++ -Og cannot follow the hints of xxhash, and reports errors
  add_link_options(-fsanitize=${ROFORMER_SANITIZE})
endif()

# rf_unity(<target>): the compiler reads 20 files of a target as one, because parsing headers dominates compile time, even
# with torch precompiled, and instantiates templates once. The files of a group then share names in anonymous namespaces.
# With -DROFORMER_UNITY=OFF each file is compiled alone, which is faster if you change a single file.
option(ROFORMER_UNITY "Compile several source files of a module at once" ON)
function(rf_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ROFORMER_UNITY} UNITY_BUILD_BATCH_SIZE 20)
  # With more inlining, g++ 12 reports accesses beyond a tensor in torch's headers. It also treats the included files as
  # headers, in which a type of an anonymous namespace would be a mistake.
  target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-subobject-linkage>")
endfunction()
# rf_unity_group(<name> <file>...): reads these files as one, if their names would collide with other files.
function(rf_unity_group name)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${name})
endfunction()

function(rf_module name)
  cmake_parse_arguments(MODULE "SHARED;TORCH_HEADERS;CONTROL;UNITY" "EXPORTS" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  set(kind STATIC)
  if(MODULE_SHARED)
    set(kind SHARED)
  endif()
  add_library(rf_${name} ${kind} ${MODULE_SOURCES})
  add_library(rf::${name} ALIAS rf_${name})
  set_target_properties(rf_${name} PROPERTIES OUTPUT_NAME roformer_${name})
  target_include_directories(rf_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(rf_${name} PUBLIC ${MODULE_LINKS} PRIVATE rf_warnings ${MODULE_PRIVATE_LINKS})
  if(MODULE_TORCH_HEADERS)
    rf_use_torch_headers(rf_${name})
  endif()
  if(MODULE_CONTROL)
    target_compile_options(rf_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(MODULE_UNITY)
    rf_unity(rf_${name})
  endif()
  if(MODULE_EXPORTS)
    set(script ${CMAKE_CURRENT_SOURCE_DIR}/${MODULE_EXPORTS})
    target_link_options(rf_${name} PRIVATE LINKER:--version-script=${script})
    set_target_properties(rf_${name} PROPERTIES LINK_DEPENDS ${script} VERSION ${PROJECT_VERSION}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  endif()
endfunction()

# rf_test(<module> [SANITIZED] SOURCES ... LINKS ... [UNITY]): one GoogleTest binary per module,
# build/<preset>/tests/<module>_test. scripts/run_tests.py expects the list of all programs in tests/programs.txt of the
# build. SANITIZED: scripts/test.sh runs the program in the sanitizer build only; the target rf_sanitized_tests builds these
# programs elsewhere, and tests/sanitized.txt lists them.
add_custom_target(rf_sanitized_tests)
function(rf_test module)
  cmake_parse_arguments(T "SANITIZED;UNITY" "" "SOURCES;LINKS" ${ARGN})
  add_executable(rf_${module}_test ${T_SOURCES})
  set_target_properties(rf_${module}_test PROPERTIES OUTPUT_NAME ${module}_test RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_include_directories(rf_${module}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(rf_${module}_test PRIVATE rf_warnings ${T_LINKS} GTest::gtest GTest::gtest_main)
  # Compiling most tests takes longer than running them.
  target_compile_options(rf_${module}_test PRIVATE $<$<CONFIG:Release>:$<IF:$<STREQUAL:${module},core>,-O2,-O1>>)
  if(T_UNITY)
    rf_unity(rf_${module}_test)
  endif()
  if(T_SANITIZED AND NOT ROFORMER_SANITIZE)
    set_target_properties(rf_${module}_test PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(rf_sanitized_tests rf_${module}_test)
    set_property(GLOBAL APPEND_STRING PROPERTY rf_sanitized_programs "${module}_test\n")
  else()
    add_test(NAME ${module} COMMAND rf_${module}_test)
    set_property(GLOBAL APPEND_STRING PROPERTY rf_test_programs "${module}_test\n")
  endif()
endfunction()
