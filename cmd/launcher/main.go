// launcher is what bin/monopod-bundle is: it carries monopod and the programs that monopod needs, compressed. It unpacks them where they are not
// yet, once for each version, and becomes the monopod among them (exec: same process, arguments, environment and files), which finds the others
// beside itself.
//
// It must stay small and quick, since it runs before each command: it reads no configuration and talks to nobody.
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
