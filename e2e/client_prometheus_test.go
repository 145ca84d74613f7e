//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// targets are the targets that Prometheus would scrape: by role, and source of a group.
type targets struct {
	mu   sync.Mutex
	seen map[string]map[string]group
}

// group is a line of e2e/testdata/clients/discover.
type group struct {
	Role, Source string
	Labels       map[string]string
	Targets      []map[string]string
}

// labeled returns the targets of a role that have labels, which are written like a=b,c=d.
func (d *targets) labeled(role, wanted string) (found []map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.seen[role] {
		for _, target := range g.Targets {
			has := true
			for label := range strings.SplitSeq(wanted, ",") {
				name, value, _ := strings.Cut(label, "=")
				has = has && (target[name] == value || g.Labels[name] == value)
			}
			if has {
				found = append(found, target)
			}
		}
	}
	return found
}

// TestClientPrometheus: the discovery of Prometheus finds targets of each role, and follows changes and a kill of the agent.
func TestClientPrometheus(t *testing.T) {
	t.Parallel()
	program := clientProgram(t, "discover")
	in, admin := servesKubernetes(t)
	d := &targets{seen: map[string]map[string]group{}}
	c := exec.CommandContext(t.Context(), program, admin.kubeconfig)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		d.read(bufio.NewScanner(out))
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-read
		_ = c.Wait()
		if t.Failed() {
			t.Logf("discover: %s", errs.String())
		}
	})
	in.isDiscovered(admin, func() *targets { return d })
}

// TestClientPrometheusInAPod: the same in a pod that may only read, and is not restarted with the agent.
func TestClientPrometheusInAPod(t *testing.T) {
	t.Parallel()
	in, admin := servesKubernetes(t)
	in.put("discover", clientPod("discover", "view", in.clientImage("discover"), "/bin/discover", ""))
	t.Cleanup(func() { in.logsIfFailed(admin, "discover") })
	check := in.untouched("discover")
	in.isDiscovered(admin, func() *targets {
		d := &targets{seen: map[string]map[string]group{}}
		out, _, _ := admin.try("", "logs", "discover")
		d.read(bufio.NewScanner(strings.NewReader(out)))
		return d
	})
	check("after the agent")
}

// isDiscovered tests which targets are found.
func (in *instance) isDiscovered(admin *kubectl, discovered func() *targets) {
	in.t.Helper()
	admin.gives(fmt.Sprintf(shop, image), "apply", "-f", "-")
	finds := func(rows ...targetRow) {
		in.t.Helper()
		for _, row := range rows {
			in.eventually(fmt.Sprintf("Prometheus finds %d targets of the role %s with %s", row.n, row.role, row.labels), func() error {
				if found := discovered().labeled(row.role, row.labels); len(found) != row.n {
					return fmt.Errorf("it finds %d: %v", len(found), found)
				}
				return nil
			})
		}
	}
	const (
		ofPod  = "__meta_kubernetes_pod_label_app=shop,__meta_kubernetes_pod_ready=true,__meta_kubernetes_pod_container_port_name=http"
		ready  = "__meta_kubernetes_service_name=shop,__meta_kubernetes_endpoint_ready=true,__meta_kubernetes_endpoint_port_name="
		slices = "__meta_kubernetes_service_name=shop,__meta_kubernetes_endpointslice_endpoint_conditions_ready=true"
	)
	finds(
		targetRow{"node", "__meta_kubernetes_node_name=e2e", 1},
		targetRow{"pod", ofPod + ",__meta_kubernetes_pod_controller_kind=ReplicaSet,__meta_kubernetes_pod_node_name=e2e", 2},
		targetRow{"pod", "__meta_kubernetes_pod_name=file", 1},
		targetRow{"service", "__address__=shop.default.svc:80,__meta_kubernetes_service_type=ClusterIP", 1},
		targetRow{"endpoints", ready + ",__meta_kubernetes_pod_container_port_number=8080", 2},
		targetRow{"endpointslice", slices + ",__meta_kubernetes_pod_phase=Running", 2},
	)
	admin.prints("scale", "deployment", "shop", "--replicas=3")
	finds(targetRow{"pod", ofPod, 3}, targetRow{"endpoints", ready, 3}, targetRow{"endpointslice", slices, 3})
	in.kill9()
	in.start()
	admin.prints("scale", "deployment", "shop", "--replicas=1")
	finds(
		targetRow{"pod", ofPod, 1}, targetRow{"endpoints", ready, 1}, targetRow{"endpointslice", slices, 1},
		targetRow{"node", "__meta_kubernetes_node_name=e2e", 1},
	)
	admin.prints("delete", "deployment,service", "shop")
	finds(targetRow{"pod", ofPod, 0}, targetRow{"service", "__meta_kubernetes_service_name=shop", 0}, targetRow{"endpointslice", slices, 0})
}

// targetRow says how many targets of a role have some labels.
type targetRow struct {
	role, labels string
	n            int
}

// read records the printed lines until the end of the output.
func (d *targets) read(lines *bufio.Scanner) {
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var g group
		if json.Unmarshal(lines.Bytes(), &g) != nil {
			continue
		}
		d.mu.Lock()
		if d.seen[g.Role] == nil {
			d.seen[g.Role] = map[string]group{}
		}
		d.seen[g.Role][g.Source] = g
		d.mu.Unlock()
	}
}
