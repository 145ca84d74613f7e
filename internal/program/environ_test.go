package program

import (
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/config"
	"monopod/internal/testfiles"
)

func TestClientsFindTheSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	testfiles.Write(t, file, "stateDirectory: run\n")
	p := &Program{Env: config.Environment{Environ: []string{"MONOPOD_CONFIG=" + file}, WorkDir: dir, Hostname: os.Hostname}}
	if got := p.FindSocket(""); got != filepath.Join(dir, "run", "monopod.sock") {
		t.Errorf("by configuration: %s", got)
	}
	p.Env.Environ = append(p.Env.Environ, "MONOPOD_SOCKET=/by/variable")
	if got := p.FindSocket(""); got != "/by/variable" {
		t.Errorf("by variable: %s", got)
	}
	if got := p.FindSocket("/by/flag"); got != "/by/flag" {
		t.Errorf("by flag: %s", got)
	}
	testfiles.Write(t, file, "nonsense: 1\n")
	p.Env.Environ = p.Env.Environ[:1]
	if got := p.FindSocket(""); got != BuiltInSocket {
		t.Errorf("with a bad configuration: %s", got)
	}
}
