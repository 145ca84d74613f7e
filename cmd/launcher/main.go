// launcher is the program bin/monopod-bundle: it contains monopod and the programs that monopod needs, compressed. It unpacks them once per
// version and then executes the unpacked monopod (exec: same process, arguments, environment and files), which finds the others next to
// itself.
//
// It must stay small and fast, because it runs before each command: it reads no configuration and uses no network.
package main

import (
	"fmt"
	"os"
	"syscall"

	"monopod/internal/bundle"
)

// exitNotRun is what `env` and others return when the program could not be started.
const exitNotRun = 125

func main() {
	p, err := bundle.Carried()
	if err == nil {
		self, _ := os.Executable()
		l := launcher{parcel: p, self: self, args: os.Args, env: os.Environ(), euid: os.Geteuid(), stderr: os.Stderr, exec: syscall.Exec, fallback: fromMemory}
		err = l.run()
	}
	fmt.Fprintln(os.Stderr, "monopod:", err)
	os.Exit(exitNotRun)
}
