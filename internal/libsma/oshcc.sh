#!/bin/sh
# @NAME@ compiles and links OpenSHMEM programs. @OVERRIDE@ names another compiler.
dir=$(readlink -f "$0")
dir=${dir%/*/*}
compiler=${@OVERRIDE@:-@COMPILER@}
link=yes show=
for arg; do
  case $arg in
    --version) echo '@VERSION@'; exec $compiler --version ;;
    -show | --show | -showme | --showme) show=yes ;;
    -static | --static | -static-pie)
      echo "@NAME@: $arg: the library is shared only: link without $arg" >&2
      exit 1 ;;
    -c | -S | -E | -M | -MM) link= ;;
  esac
  shift
  [ -n "$show" ] && [ "${arg#-}" != "$arg" ] && case $arg in -show | --show | -showme | --showme) continue ;; esac
  set -- "$@" "$arg"
done
set -- -I"$dir/include" "$@"
[ -z "$link" ] || set -- "$@" -L"$dir/lib" -Wl,-rpath,"$dir/lib" -lsma
if [ -n "$show" ]; then
  echo "$compiler $*"
  exit 0
fi
exec $compiler "$@"
