package outlook_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monopod/internal/config"
	"monopod/internal/daemon/outlook"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/spaces"
)

// TestTheDaemonLogsTheWarningsOfValidateOnce: those of each source, about what its pods see.
func TestTheDaemonLogsTheWarningsOfValidateOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := outlook.New(slog.New(slog.NewTextHandler(&log, nil)), &manifests.Spaces{Local: []string{config.SourceFile, config.SourceApplied}}, "here")
		go o.Run(t.Context()) //nolint:errcheck // nil
		const reader = "apiVersion: v1\nkind: Pod\nmetadata: {name: POD}\nspec: {containers: [{name: a, image: b, envFrom: [{configMapRef: {name: app}}]}]}\n"
		d := model.Desired{Order: []string{config.SourceFile, config.SourceApplied, "fleet", spaces.APIServer}, Reported: map[string]bool{}}
		give := func(source, name, text string) {
			t.Helper()
			c, err := decode.All(name+".yaml", []byte(text), decode.Options{Source: source})
			if err != nil {
				t.Fatal(err)
			}
			d.Pods, d.Objects, d.Workloads = append(d.Pods, c.Pods...), append(d.Objects, c.Objects...), append(d.Workloads, c.Workloads...)
		}
		logs := func(what string, want ...string) {
			t.Helper()
			o.Take(d)
			time.Sleep(outlook.Delay)
			synctest.Wait()
			lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
			log.Reset()
			if len(want) == 0 {
				want = []string{""}
			}
			if len(lines) != len(want) {
				t.Fatalf("%s: got %q", what, lines)
			}
			for i := range want {
				if !strings.Contains(lines[i], want[i]) {
					t.Errorf("%s: got %q, want %q", what, lines[i], want[i])
				}
			}
		}
		const missing = "there is no ConfigMap default/app: the pod waits for it"
		give(config.SourceFile, "local", strings.Replace(reader, "POD", "local", 1))
		give("fleet", "far", strings.Replace(reader, "POD", "far", 1))
		give(spaces.APIServer, "bound", strings.Replace(reader, "POD", "bound", 1))
		logs("before all sources are read")
		for _, source := range d.Order {
			d.Reported[source] = true
		}
		logs("the object is missing", "local.yaml:1: pod default/local: spec.containers[0].envFrom[0].configMapRef.name: "+missing, "far.yaml:1: pod default/far: ")
		logs("nothing has changed")
		before := d.Objects
		give(config.SourceApplied, "app", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n")
		logs("another source of the space has it")
		whole := d
		d.Objects = before
		o.Take(d)
		time.Sleep(outlook.Delay / 2)
		d = whole
		logs("it was gone for a moment")
		d.Objects = before
		logs("it is gone", "pod default/local: ")
		give("fleet", "names", "apiVersion: v1\nkind: Pod\nmetadata: {name: there}\nspec: {nodeName: there, containers: [{name: a, image: b}]}\n---\n"+
			"apiVersion: v1\nkind: Pod\nmetadata: {name: here}\nspec: {nodeName: here, containers: [{name: a, image: b}]}\n")
		logs("a pod for another machine", "names.yaml:1: pod default/there: spec.nodeName: it runs on this machine, here, although it names there")
	})
}
