//go:build e2e

package ctrdtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/manifests"
)

// TypeIn writes a line to the standard input of the pod's container, like a client that attaches, writes and detaches.
func (a *Agent) TypeIn(t testing.TB, key manifests.Key, line string) {
	t.Helper()
	all := a.Index.OfPod(key)
	f, err := os.OpenFile(filepath.Join(a.Dirs.Path("logs"), all[len(all)-1].ID, "stdin"), os.O_WRONLY, 0)
	Check(t, err)
	_, err = f.WriteString(line + "\n")
	Check(t, err)
	Check(t, f.Close())
}

// Says waits until a line is in the log.
func (a *Agent) Says(t testing.TB, key manifests.Key, line string) {
	t.Helper()
	Within(t, 10*time.Second, fmt.Sprintf("%q is in the log", line), func() bool {
		return strings.Contains("\n"+a.LogOf(t, key), "\n"+line+"\n")
	})
}
