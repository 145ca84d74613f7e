// containerd-shim-monopod-v2 is the process that stands between containerd and one container.
package main

import "monopod/runner/ctrd/shim"

func main() { shim.Main() }
