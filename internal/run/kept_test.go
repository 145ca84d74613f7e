package run

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/runner/runtimetest"
)

func TestWhyInAKeptRunNamesTheFileOfItsAuthor(t *testing.T) {
	b := newRunBench(t)
	t.Chdir(b.Dir)
	b.file("web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n---\n"+daemontest.PodYAML("web", runtimetest.ScriptServe))
	if r := b.do("once", "-f", "web.yaml"); r.Code != 0 || len(b.kept) != 1 {
		t.Fatalf("code %d: %s", r.Code, r.Stderr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p, _, _ := b.prog()
	errs := &daemontest.SyncBuffer{}
	p.Stderr, p.Env.Environ = errs, nil // the socket is that of the run
	ended := make(chan int, 1)
	go func() {
		ended <- commands(ctx, p, []string{"run", "--config", filepath.Join(b.kept[0].RootDirectory, runFile)})
	}()
	want := b.Path("web.yaml") + ":6"
	b.Eventually("its agent says where the pod is written", func() error {
		if r := b.do("why", "web", "--socket", b.kept[0].Socket); r.Code != 0 || !strings.Contains(r.Stdout, want) || strings.Contains(r.Stdout, ".json") {
			return fmt.Errorf("no %s: code %d: %s%s\n%s", want, r.Code, r.Stdout, r.Stderr, errs)
		}
		return nil
	})
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("the agent: code %d: %s", code, errs)
	}
	if r := b.do("down", "0"); r.Code != 0 {
		t.Errorf("down: code %d: %s", r.Code, r.Stderr)
	}
	b.nothingLeft()
}
