// containerd-shim-monopod-v2 is the process that stands between containerd and one container. Under the name pause it
// is process 1 of a process namespace that the containers of a pod share.
package main

import "monopod/runner/ctrd/shim"

func main() {
	if shim.IsPause() {
		shim.Pause()
		return
	}
	shim.Main()
}
