// containerd-shim-monopod-v2 is the process that stands between containerd and one container. Under the name pause it
// is process 1 of a process namespace that the containers of a pod share.
package main

import (
	"monopod/runner/ctrd/shim"
	_ "monopod/runner/ctrd/shim/early" // answers before all else is ready
)

func main() {
	if shim.IsPause() {
		shim.Pause()
		return
	}
	shim.Main()
}
