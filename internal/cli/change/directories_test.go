package change

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestApplyReadsDirectoriesAsTheDaemonDoes: what is below a sub-directory is not read silently, nor silently left out.
func TestApplyReadsDirectoriesAsTheDaemonDoes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	dir := filepath.Dir(d.File("set/app.yaml", fmt.Sprintf(configMapYAML, "v1")))
	below := filepath.Dir(d.File("set/below/other.yaml", strings.Replace(fmt.Sprintf(configMapYAML, "v1"), "name: app", "name: other", 1)))
	const only, both = "configmap/app created (dry run)\n", "configmap/app created (dry run)\nconfigmap/other created (dry run)\n"
	d.Says(0, only, "$DIR/files/set/below: manifests in sub-directories are not read; name the directory, too\n", "apply", "--dry-run", "-f", dir)
	d.Says(0, both, "", "apply", "--dry-run", "-f", dir, "-f", below)
}
