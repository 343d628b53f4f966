# Sourced by scripts that fetch one package file by name without changing the machine's
# own apt.
#
# private_apt WORK KIND SUITE: sets the array `apt_options` for apt-get calls on SUITE of
# Debian. KIND is deb or deb-src. Lists and downloads stay under WORK, so root is not
# needed. The place to ask is the one that this machine's apt already uses. Returns 1 when
# it has none.
private_apt() {
  local work=$1 kind=$2 suite=$3 uri
  mkdir -p "$work"/lists/partial "$work"/cache/archives/partial
  uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
    'Component: main' 'Origin: Debian' 'Label: Debian' 2>/dev/null |
    sort -u | head -1) || true
  if [ -z "$uri" ]; then
    echo "apt has no package lists of Debian; run apt-get update first" >&2
    return 1
  fi
  local key=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "$kind [signed-by=$key] $uri $suite main" >"$work/sources.list"
  apt_options=(-q
    -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache"
    -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none -o Acquire::Retries=3)
}
