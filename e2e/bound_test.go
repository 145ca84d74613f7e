//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/apitest"
)

// TestPodsThatTheAPIServerBindsHere runs an agent with a real API server as one more source.
func TestPodsThatTheAPIServerBindsHere(t *testing.T) {
	s := apitest.Start(t, apitest.Options{})
	proxy := apitest.NewProxy(t, s.Address)
	in := newInstance(t, "kubeconfig: "+s.Kubeconfig(proxy.Address(), apitest.Node("e2e")), "apiServerPods: true")
	in.put("taken", idle("taken"))
	in.start()
	s.Eventually("the node takes pods", func() error {
		var n corev1.Node
		if err := s.Do(http.MethodGet, "/api/v1/nodes/e2e", nil, &n); err != nil {
			return err
		}
		for _, taint := range n.Spec.Taints { // the API server has its own
			if strings.HasPrefix(taint.Key, "monopod") {
				return fmt.Errorf("%+v", n.Spec.Taints)
			}
		}
		return nil
	})
	in.put("lost", strings.Replace(idle("lost"), "name: lost", "name: lost, namespace: nowhere", 1))
	in.eventually("why says what the API server refuses", func() error {
		out, err := in.run("why", "lost", "-n", "nowhere")
		if !strings.Contains(out, `the API server does not show it as it is: create mirror pod: namespaces "nowhere" not found`) {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	in.ready("taken")
	untouched := in.untouched("taken")
	ours := func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }
	bound := s.Bind("e2e", "bound", ours)
	taken := s.Bind("e2e", "taken", ours)
	local := in.ready("bound")
	if local.UID != bound.UID {
		t.Errorf("it has the uid %s, over there %s", local.UID, bound.UID)
	}
	var there corev1.Pod
	s.Eventually("its status is told", func() error {
		s.Must(http.MethodGet, mirrors+"bound", nil, &there)
		if there.Status.Phase != corev1.PodRunning || there.Status.PodIP == "" || len(there.Status.ContainerStatuses) == 0 || !there.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("%+v", there.Status)
		}
		return nil
	})
	in.eventually("it has its ConfigMap, its Secret and its token", func() error {
		out, err := in.run("logs", "bound")
		if f := strings.Fields(out); err != nil || len(f) != 3 || f[0] != "blue" || f[1] != "secret" || len(f[2]) < 3 {
			return fmt.Errorf("%q %w", out, err)
		}
		return nil
	})
	secretsAreOurs(t, filepath.Join(in.dir, "root"))
	// A Secret that changes is another file.
	s.Must(http.MethodPatch, "/api/v1/namespaces/default/secrets/db", map[string]any{"stringData": map[string]any{"pass": "other"}}, nil)

	both := in.untouched("taken", "bound")
	s.Stop()
	in.kill9()
	in.start()
	in.ready("bound")
	both("the API server and monopod were killed")
	in.tells("apiserver", "Unreachable", "")
	in.put("later", idle("later"))
	in.ready("later")
	s.Start()
	in.eventually("the other Secret is there", func() error {
		if out, err := in.run("exec", "bound", "--", "cat", "/db/pass"); err != nil || out != "other" {
			return fmt.Errorf("%q %w", out, err)
		}
		return nil
	})
	both("they came back")
	if err := s.Do(http.MethodGet, mirrors+"bound-e2e", nil, nil); !apitest.NotFound(err) {
		t.Errorf("it has a mirror: %v", err)
	}
	s.Must(http.MethodDelete, mirrors+"bound", nil, nil)
	s.Must(http.MethodDelete, mirrors+"taken", nil, nil)
	in.gone("bound")
	s.Eventually("they are gone over there", func() error {
		for _, name := range []string{"bound", "taken"} {
			if err := s.Do(http.MethodGet, mirrors+name, nil, nil); !apitest.NotFound(err) {
				return fmt.Errorf("%s is there: %w", name, err)
			}
		}
		return nil
	})
	untouched("a pod of its name came and went over there")
	if p := in.ready("taken"); p.UID == taken.UID {
		t.Error("the pod of the file is that of the API server")
	}
}

// secretsAreOurs looks for files with a Secret that others may read.
func secretsAreOurs(t *testing.T, root string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!d.Type().IsRegular() || d.Name() != "answer") {
			return nil
		}
		if err != nil {
			return err
		}
		found++
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, st.Mode(), err)
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d copies: %v", found, err)
	}
}
