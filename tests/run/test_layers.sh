#!/bin/sh
# Dependencies point one way: what the files of each folder of src/ (and of cuda/) may include.
# usage: test_layers.sh SOURCE_ROOT
cd "$1" || exit 1
wrong=0

# layer FILES… : FOLDERS THEY MAY INCLUDE FROM
layer() {
    files=
    while [ "$1" != : ]; do files="$files $1"; shift; done
    shift
    allowed=$(echo "$*" | tr ' ' '|')
    found=$(grep -rEn '^#[[:space:]]*include "' $files) || { echo "nothing to check in$files"; wrong=1; return; }
    bad=$(echo "$found" | grep -Ev "include \"(($allowed)/[^\"]*|[^/\"]*)\"")
    [ -z "$bad" ] || { echo "expected includes from: $*; found"; echo "$bad"; wrong=1; }
}

layer src/base : base
layer src/config : base config
layer src/data : base config data
layer src/backend : base backend
layer src/comm : base comm
layer cuda : base config backend comm cuda
layer src/model : base config data backend comm model
layer src/checkpoint : base config backend comm model checkpoint
layer src/train/device.c : base config backend comm train cuda # the one place that knows which devices there are
layer $(ls src/train/*.[ch] | grep -v device.c) : base config data backend comm model checkpoint train
layer src/main.c : base config train
layer data_tools : base config data
exit $wrong
