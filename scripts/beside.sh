# Sourced by scripts/check and scripts/test: commands that run beside the tests.
#   beside NAME COMMAND…   start it; what it says is kept
#   all_ended              wait for each, print what those that failed said, and return 1 if one did
# Each has a process group of its own, and is interrupted when the script ends before it.
declare -a besides=()
declare -A beside_pid=()
beside_logs=$(mktemp -d)

beside() {
  local name=$1
  shift
  set -m
  "$@" > "$beside_logs/$name" 2>&1 < /dev/null &
  beside_pid[$name]=$!
  besides+=("$name")
  set +m
}

all_ended() {
  local name failed=0
  for name in "${besides[@]}"; do
    if ! wait "${beside_pid[$name]}"; then
      failed=1
      printf '\n%s failed:\n' "$name"
      cat "$beside_logs/$name"
    fi
    unset "beside_pid[$name]"
  done
  return $failed
}

interrupt_besides() {
  local name
  for name in "${!beside_pid[@]}"; do
    kill -INT -- "-${beside_pid[$name]}" 2> /dev/null || true
    wait "${beside_pid[$name]}" || true
  done
  rm -rf "$beside_logs"
}
trap interrupt_besides EXIT
