# Looks for torch in `python` without loading it: torch_root, ROFORMER_TORCH_VERSION and an empty torch_problem, or the
# reason why torch cannot be used.
set(torch_versions "2.11 to 2.15")
execute_process(
  COMMAND "${python}" -c
    "import importlib.util as u, pathlib as p; r = p.Path(u.find_spec('torch').origin).parent; print(r); print(open(r / 'version.py').read().split(\"__version__ = '\")[1].split(\"'\")[0], end='')"
  OUTPUT_VARIABLE torch_probe ERROR_VARIABLE torch_error RESULT_VARIABLE torch_rc)
string(REGEX MATCH "^([^\n]*)\n(([0-9]+\\.[0-9]+)[^\n]*)" unused "${torch_probe}")
set(torch_root "${CMAKE_MATCH_1}")
set(ROFORMER_TORCH_VERSION "${CMAKE_MATCH_2}")
set(torch_problem "")
if(NOT torch_rc EQUAL 0)
  set(torch_problem "No torch in ${python}")
elseif(CMAKE_MATCH_3 VERSION_LESS 2.11 OR CMAKE_MATCH_3 VERSION_GREATER 2.15)
  set(torch_problem "torch ${ROFORMER_TORCH_VERSION} in ${python}: ${torch_versions} are supported")
endif()
