package view

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/internal/program"
	"monopod/node"
	"monopod/runner/runtimetest"
)

func TestWhatGetPrints(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.StartSettled()
	d.Golden(t, "settled", nil, [][]string{
		{"get", "pods"},
		{"get", "po", "-A", "-o", "wide"},
		{"get", "pods", "-o", "name"},
		{"get", "pods", "-n", "other"},
		{"get", "pods", "-n", "nothing"},
		{"get", "pod", "web"},
		{"get", "pod/web", "-o", "yaml"},
		{"get", "pod", "pull"},
		{"get", "pod", "nope"},
		{"get", "sources"},
		{"get", "sources", "-o", "name"},
		{"get", "pdos"},
		{"get", "sources", "x"},
		{"get", "pods", "-o", "table"},
	}...)
}

func TestJSONIsAPodListThatStrictToolsCanRead(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.StartSettled()
	r := d.Cmd("get", "pods", "-o", "json")
	var list corev1.PodList
	if err := yaml.UnmarshalStrict([]byte(r.Stdout), &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "PodList" || list.APIVersion != "v1" || len(list.Items) != 3 {
		t.Errorf("list is %s %s with %d items", list.APIVersion, list.Kind, len(list.Items))
	}
	for _, p := range list.Items {
		if p.Kind != "Pod" || p.APIVersion != "v1" || p.UID == "" || p.Spec.NodeName != "test-node" {
			t.Errorf("item %s: kind %q, version %q, uid %q, node %q", p.Name, p.Kind, p.APIVersion, p.UID, p.Spec.NodeName)
		}
		if src := p.Annotations[node.AnnotationSource]; !strings.HasPrefix(src, d.Path("manifests")) || !strings.HasSuffix(src, ".yaml:1") {
			t.Errorf("source of %s is %q", p.Name, src)
		}
	}
	if why := list.Items[2].Annotations[node.AnnotationWhy]; !strings.Contains(why, "no such host") {
		t.Errorf("why of %s is %q", list.Items[2].Name, why)
	}
	var fromYAML corev1.PodList
	if err := yaml.UnmarshalStrict([]byte(d.Cmd("get", "pods", "-o", "yaml").Stdout), &fromYAML); err != nil || len(fromYAML.Items) != 3 {
		t.Errorf("yaml: %v, %d items", err, len(fromYAML.Items))
	}
	var inputs []model.Input
	if err := json.Unmarshal([]byte(d.Cmd("get", "sources", "-o", "json").Stdout), &inputs); err != nil || len(inputs) < 5 {
		t.Errorf("sources: %v, %d", err, len(inputs))
	}
}

func TestWatchShowsEachChangeUntilItIsStopped(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	for _, output := range []string{"", "json", "yaml", "name"} {
		t.Run("output "+output, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			p := d.Program()
			out := &daemontest.SyncBuffer{}
			p.Stdout = out
			code := make(chan int, 1)
			go func() { code <- commands(ctx, p, []string{"get", "pods", "-w", "-o", output}) }()
			name := "w" + output
			d.Put(name+".yaml", daemontest.PodYAML(name, runtimetest.ScriptServe))
			want := map[string]string{"": "Running", "json": `"phase": "Running"`, "yaml": "phase: Running", "name": "pod/" + name}[output]
			d.Eventually("the pod is shown running", func() error {
				if s := out.String(); !strings.Contains(s, want) || !strings.Contains(s, name) {
					return errors.New(s)
				}
				return nil
			})
			if err := os.Remove(d.Path("manifests", name+".yaml")); err != nil {
				t.Fatal(err)
			}
			d.Eventually("its end is shown", func() error {
				if s := out.String(); output == "" && !strings.Contains(s, "Deleted") {
					return errors.New(s)
				}
				if r := d.Cmd("get", "pods", "-o", "name"); r.Stdout != "" {
					return errors.New(r.Stdout)
				}
				return nil
			})
			if n := strings.Count(out.String(), "NAMESPACE"); output == "" && n != 1 {
				t.Errorf("%d headers:\n%s", n, out)
			}
			stop()
			if c := <-code; c != program.ExitOK {
				t.Errorf("exit code %d after Ctrl-C", c)
			}
		})
	}
}

func TestWhatGetPrintsOfObjects(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.StartWorkloads()
	d.Golden(t, "workloads", nil, [][]string{
		{"get", "deploy"},
		{"get", "deployments.apps", "web", "-o", "wide"},
		{"get", "all"},
		{"get", "svc,cm"},
		{"get", "secrets"},
		{"get", "secret", "login", "-o", "yaml"},
		{"get", "cj", "-A"},
		{"get", "job/once"},
		{"get", "no"},
		{"get", "deploy/web", "svc/web", "-o", "name"},
		{"get", "deploy", "-l", "tier=front", "--no-headers"},
		{"get", "deploy", "-l", "tier!=front"},
		{"get", "pods", "-l", "app in (web)", "-o", "name"},
		{"get", "pods", "-o", "jsonpath={.items[*].metadata.name}"},
		{"get", "deploy", "web", "-o", `jsonpath={.spec.replicas}{"\n"}`},
		{"get", "cm", "-o", "custom-columns=NAME:.metadata.name,A:.data.a,NONE:.data.z"},
		{"get", "pods", "web-0", "nope", "web-1", "-o", "name"},
		{"get", "deploy", "nope"},
		{"get", "deploy", "web", "-l", "a=b"},
		{"get", "pods", "-l", "a b c"},
		{"get", "pods", "-o", "jsonpath={.a"},
		{"get", "deploy", "-w"},
		{"get", "sts"},
		{"get", "widgets"},
		{"get", "all", "web"},
		{"get", "deploy/"},
		{"get", "jobs", "-n", "other"},
		{"get", "all,cm"},
		{"get", "rc"},
		{"get", "cm/nope", "-o", "yaml"},
	}...)
	if r := d.Cmd("get", "secret", "login", "-o", "json"); strings.Contains(r.Stdout, "hunter2") || strings.Contains(r.Stdout, "aHVudGVyMg") {
		t.Errorf("a secret is shown: %s", r.Stdout)
	}
	var list corev1.List
	if r := d.Cmd("get", "all", "-o", "json"); json.Unmarshal([]byte(r.Stdout), &list) != nil || len(list.Items) != 8 {
		t.Errorf("get all has %d items: %s", len(list.Items), r.Stdout)
	}
}
