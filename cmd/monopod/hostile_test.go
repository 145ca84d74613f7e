package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/model"
	"monopod/internal/testfiles"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/node/why"
)

// hostilePods have states that reach each line of `describe`, the first one running, with its volumes and probes.
func hostilePods() corev1.PodList {
	list := corev1.PodList{Items: []corev1.Pod{daemontest.HostileTexts[corev1.Pod](), daemontest.HostileTexts[corev1.Pod](), daemontest.HostileTexts[corev1.Pod](), daemontest.HostileTexts[corev1.Pod]()}}
	probes, err := json.Marshal(daemontest.HostileTexts[[]model.Probe]())
	if err != nil {
		panic(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if i > 0 {
			p.DeletionTimestamp = nil
		}
		p.Annotations = map[string]string{daemontest.Evil: daemontest.Evil, node.AnnotationProbes: string(probes)}
		for _, own := range []string{node.AnnotationSource, node.AnnotationWhy, node.AnnotationNextTry, node.AnnotationManifest, node.AnnotationRevision, node.AnnotationRollback, node.AnnotationUpdate} {
			p.Annotations[own] = daemontest.Evil
		}
		for j := range p.Status.ContainerStatuses {
			s := &p.Status.ContainerStatuses[j].State
			switch i {
			case 1:
				s.Running, s.Waiting = nil, nil
			case 2:
				s.Running, s.Terminated = nil, nil
			}
		}
		if i > 0 {
			p.Status.InitContainerStatuses, p.Spec.InitContainers = nil, nil
		}
	}
	return list
}

// hostileDaemon answers each request with evil: as errors only, or with what is asked for.
func hostileDaemon(t *testing.T, onlyErrors bool) string {
	t.Helper()
	send := func(w http.ResponseWriter, v any) {
		w.Header().Set("Warning", "299 monopod "+strconv.Quote(daemontest.Evil))
		_ = json.NewEncoder(w).Encode(v)
	}
	pods := hostilePods()
	mux := http.NewServeMux()
	one := func(v any) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				v = map[string]any{"type": "MODIFIED", "object": v}
			}
			send(w, v)
		}
	}
	list := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			send(w, pods)
			return
		}
		for _, kind := range []string{"ADDED", daemontest.Evil, "DELETED"} {
			send(w, map[string]any{"type": kind, "object": pods.Items[1]})
		}
	}
	mux.HandleFunc("GET "+localapi.PodReports(""), list)
	mux.HandleFunc("GET "+localapi.Base+"/namespaces/{namespace}/podreports", list)
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/namespaces/{namespace}/podreports/{name}", func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(strings.TrimPrefix(r.PathValue("name"), "web"))
		send(w, pods.Items[i])
	})
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/namespaces/{namespace}/podreports/{name}/history", one(hostileHistory()))
	mux.HandleFunc("POST /apis/monopod.dev/v1alpha1/namespaces/{namespace}/podreports/{name}/rollback", one(hostileHistory()))
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/agents/self/events", func(w http.ResponseWriter, r *http.Request) {
		list := daemontest.HostileTexts[corev1.EventList]()
		if r.URL.Query().Get("watch") == "" {
			send(w, list)
			return
		}
		send(w, map[string]any{"type": "ADDED", "object": list.Items[0]})
	})
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/agents/self/sources", one(daemontest.HostileTexts[[]model.Input]()))
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/agents/self/why", one(daemontest.HostileTexts[why.Answer]()))
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/namespaces/{namespace}/podreports/{name}/why", one(daemontest.HostileTexts[why.Answer]()))
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/agents/self/documents", func(w http.ResponseWriter, r *http.Request) {
		items := slices.DeleteFunc(hostileObjects(), func(o any) bool {
			kind := r.URL.Query().Get("kind")
			return kind != "" && kind != o.(runtime.Object).GetObjectKind().GroupVersionKind().Kind
		})
		if r.URL.Query().Get("as") == "" {
			send(w, map[string]any{"items": items})
			return
		}
		table := metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name"}, {Name: daemontest.Evil}, {Name: daemontest.Evil, Priority: 1}}}
		for _, o := range items {
			table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{daemontest.Evil, daemontest.Evil, map[string]any{daemontest.Evil: daemontest.Evil}}, Object: runtime.RawExtension{Object: o.(runtime.Object)}})
		}
		send(w, table)
	})
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/agents/self/costs", one(daemontest.HostileTexts[localapi.Agent]()))
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/agents/self/drain", one(daemontest.HostileTexts[localapi.Schedule]()))
	mux.HandleFunc("PUT /apis/monopod.dev/v1alpha1/agents/self/drain", one(daemontest.HostileTexts[localapi.Schedule]()))
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/agents/self/images", one(daemontest.HostileTexts[localapi.ImageList]()))
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/agents/self/pulls", one(daemontest.HostileTexts[[]model.Pull]()))
	mux.HandleFunc("POST /apis/monopod.dev/v1alpha1/agents/self/pulls", func(w http.ResponseWriter, _ *http.Request) {
		for _, state := range []string{localapi.PullPulling, localapi.PullPulled, localapi.PullFailed, daemontest.Evil} {
			e := daemontest.HostileTexts[localapi.PullEvent]()
			e.State = state
			send(w, e)
		}
	})
	applied := daemontest.HostileTexts[localapi.ApplyResult]()
	applied.Objects[1].Verdict = localapi.NotFound
	mux.HandleFunc("/apis/monopod.dev/v1alpha1/agents/self/applied", one(applied))
	mux.HandleFunc("GET /stats/summary", one(daemontest.HostileTexts[statsapi.Summary]()))
	mux.HandleFunc("GET /apis/monopod.dev/v1alpha1/namespaces/{namespace}/podreports/{name}/files", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Monopod-Warning, Monopod-Error")
		_, _ = w.Write([]byte(daemontest.Evil))
		w.Header().Set("Monopod-Error", "a\x1b[2J\u202e")
	})
	mux.HandleFunc("PUT /apis/monopod.dev/v1alpha1/namespaces/{namespace}/podreports/{name}/files", one(localapi.Written{Warnings: []string{daemontest.Evil}}))
	mux.HandleFunc("PATCH /api/v1/namespaces/{namespace}/pods/{name}/ephemeralcontainers", func(w http.ResponseWriter, _ *http.Request) {
		send(w, pods.Items[1])
	})
	handler := http.Handler(mux)
	if onlyErrors {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			if strings.HasSuffix(r.URL.Path, "/podreports") { // no Status
				_, _ = w.Write([]byte(daemontest.Evil))
				return
			}
			send(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Message: daemontest.Evil, Reason: metav1.StatusReason(daemontest.Evil)})
		})
	}
	return clitest.ServeOn(t, handler)
}

// hostileObjects has one of most kinds; the first pod of the daemon is theirs.
func hostileObjects() []any {
	all := []any{
		of("Deployment", daemontest.HostileTexts[appsv1.Deployment]()), of("ReplicaSet", daemontest.HostileTexts[appsv1.ReplicaSet]()), of("StatefulSet", daemontest.HostileTexts[appsv1.StatefulSet]()), of("DaemonSet", daemontest.HostileTexts[appsv1.DaemonSet]()),
		of("Job", daemontest.HostileTexts[batchv1.Job]()), of("CronJob", daemontest.HostileTexts[batchv1.CronJob]()), of("Service", daemontest.HostileTexts[corev1.Service]()), of("ConfigMap", daemontest.HostileTexts[corev1.ConfigMap]()), of("Secret", daemontest.HostileTexts[corev1.Secret]()),
		of("PersistentVolumeClaim", daemontest.HostileTexts[corev1.PersistentVolumeClaim]()), of("Node", daemontest.HostileTexts[corev1.Node]()), of("StorageClass", daemontest.HostileTexts[corev1.ConfigMap]()),
	}
	return all
}

func of[T any](kind string, v T) any {
	o := any(&v).(runtime.Object)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: "x", Version: "v1", Kind: kind})
	return o
}

func hostileHistory() localapi.History {
	h := daemontest.HostileTexts[localapi.History]()
	for i := range h.Revisions {
		h.Revisions[i].Number = i + 1
		h.Revisions[i].Manifest, _ = json.Marshal(map[string]any{daemontest.Evil: daemontest.Evil, "n": strings.Repeat(daemontest.Evil, i+1)})
	}
	h.Active, h.Wanted = 1, 2
	return h
}

// clientCommands are command lines of all commands that ask the daemon; those that name web come with each of the pods.
func clientCommands(manifest string) [][]string {
	return [][]string{
		{"kubeconfig"},
		{"kubeconfig", "view", "--user", daemontest.Evil, "--output", daemontest.Evil},
		{"kubeconfig", daemontest.Evil},
		{"get", "pods"},
		{"get", "pods", "-o", "wide"},
		{"get", "pods", "-o", "name"},
		{"get", "pods", "-o", "json"},
		{"get", "pods", "-o", "yaml"},
		{"get", "pods", "-w"},
		{"get", "pods", "-w", "-o", "yaml"},
		{"get", "pods", "-w", "-o", "json"},
		{"get", "pods", "-w", "-o", "name"},
		{"get", "pod", "web"},
		{"get", "sources"},
		{"get", "sources", "-o", "name"},
		{"get", "sources", "-o", "json"},
		{"get", "sources", "-o", "yaml"},
		{"get", "all"},
		{"get", "all", "-o", "wide"},
		{"get", "all", "-o", "name"},
		{"get", "all", "-o", "yaml"},
		{"get", "cm,secrets,pvc,no,sc", "-o", "wide"},
		{"get", "cm", "-o", "jsonpath={.items[*]}"},
		{"get", "cm", "-o", "jsonpath={range .items[*]}{.data}{\"\\n\"}{end}"},
		{"get", "pods", "-o", "custom-columns=A:.metadata.name,B:.metadata.annotations,C:.spec.containers[*].image"},
		{"get", "pods", "web", "nope"},
		{"get", "deploy/web"},
		{"describe", "deploy", "web"},
		{"describe", "svc/web"},
		{"describe", "cm/web"},
		{"describe", "job/web"},
		{"describe", "no/web"},
		{"describe", "cj/web"},
		{"logs", "deploy/web"},
		{"logs", "-l", "a=b", "--prefix"},
		{"exec", "svc/web", "--", "true"},
		{"wait", "deploy/web", "--timeout=1ms"},
		{"wait", "job/web", "--for=condition=x", "--timeout=1ms"},
		{"scale", "deploy/web", "--replicas=2"},
		{"restart", "ds/web"},
		{"rollout", "status", "ds/web", "--timeout=1ns"},
		{"restart", "pod", "web"},
		{"port-forward", "svc/web", "x"},
		{"events", "deploy/web"},
		{"describe", "pod", "web"},
		{"why"},
		{"why", "web"},
		{"why", "-o", "json"},
		{"logs", "web"},
		{"events"},
		{"events", "web"},
		{"events", "-o", "json"},
		{"events", "-o", "yaml"},
		{"events", "-w"},
		{"events", "-w", "-o", "yaml"},
		{"history", "pod", "web"},
		{"history", "pod", "web", "-o", "json"},
		{"history", "pod", "web", "-o", "yaml"},
		{"diff", "pod", "web"},
		{"diff", "pod", "web", "--from=7"},
		{"rollback", "pod", "web"},
		{"apply", "-f", manifest},
		{"apply", "-f", manifest, "-o", "name"},
		{"apply", "-f", manifest, "--wait", "--timeout=1ms"},
		{"delete", "pod", "web", "--timeout=1ms"},
		{"delete", "-f", manifest, "--wait=false"},
		{"wait", "web", "--timeout=1ms"},
		{"status"},
		{"status", "-o", "json"},
		{"status", "-o", "yaml"},
		{"drain", "--timeout=1s"},
		{"cordon"},
		{"undrain"},
		{"images"},
		{"images", "-o", "wide"},
		{"images", "-o", "name"},
		{"images", "-o", "json"},
		{"images", "-o", "yaml"},
		{"pull", daemontest.Evil},
		{"pull", daemontest.Evil, "-o", "json"},
		{"exec", "web", "--", "true"},
		{"attach", "web"},
		{"debug", "web"},
		{"debug", "web", "-i", "-c", daemontest.Evil},
		{"port-forward", "web", "x"},
		{"port-forward", "web", "0", "--address", daemontest.Evil},
		{"cp", "web:/x", "out/"},
		{"cp", manifest, "web:/x"},
		{"top", "pods"},
		{"top", "containers"},
		{"top", "node"},
		{"top", "pod", "web"},
	}
}

// localCommands need no daemon: they read files with hostile names and contents.
func localCommands(manifests string) [][]string {
	return [][]string{
		{"validate", manifests},
		{"validate", manifests, "-o", "json"},
		{"once", "-f", manifests, "--config", "config.yaml"},
		{"once", "-f", manifests, "-o", "json"},
		{"up", "-f", manifests},
		{"up", "-f", manifests, "-o", "json"},
		{"config", "--config", manifests + "/evil.yaml"},
		{"config"},
		{"config", "-o", "json"},
		{"config", "--nodeName", daemontest.Evil},
		{"config", "--nodeName", daemontest.Evil, "-o", "json"},
		{"run", "--config", daemontest.Evil},
		{"run", daemontest.Evil},
		{"down", daemontest.Evil},
		{"cleanup", "--config", daemontest.Evil},
		{"install", "--config", daemontest.Evil},
		{"uninstall", "--config", daemontest.Evil},
		{"version", daemontest.Evil},
		{"version"},
		{"version", "-o", "json"},
		{"docs"},
		{"docs", daemontest.Evil},
		{daemontest.Evil},
		{"get", daemontest.Evil},
		{"get", "pods", "-o", daemontest.Evil},
		{"get", "pods", "--" + daemontest.Evil},
		{"get", "pods", "--watch=" + daemontest.Evil},
		{"wait", "x", "--for=" + daemontest.Evil},
		{"completion", "bash", daemontest.Evil},
		{"completion", "bash"},
		{"__complete", "get", "pod", ""},
		{"help", daemontest.Evil},
		{"logs", "web", "--since-time", daemontest.Evil},
		{"delete", daemontest.Evil, daemontest.Evil},
		{"exec", daemontest.Evil, "--", "x"},
		{"cp", daemontest.Evil, daemontest.Evil},
		{"top", daemontest.Evil, "x"},
		{"events", "--record", daemontest.Evil},
		{"get", "pods", "-o", "jsonpath={" + daemontest.Evil},
		{"get", "pods", "-o", "custom-columns=" + daemontest.Evil},
		{"get", "pods", "-l", daemontest.Evil},
		{"get", "deploy/" + daemontest.Evil},
		{"scale", daemontest.Evil},
		{"restart", daemontest.Evil + "/x"},
		{"rollout", "status", daemontest.Evil + "/x"},
		{"why", "--socket", "/nonexistent/" + daemontest.Evil},
		{"get", "pods", "--socket", "/nonexistent/" + daemontest.Evil},
	}
}

// TestNoCommandPrintsWhatATerminalActsOn runs every command against a daemon, files and arguments all of whose strings are evil.
func TestNoCommandPrintsWhatATerminalActsOn(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	dir := d.Path("manifests", "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(daemontest.Evil, "/", "")
	testfiles.Write(t, filepath.Join(dir, name+".yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: "+strconv.QuoteToASCII(daemontest.Evil)+", "+strconv.QuoteToASCII(daemontest.Evil)+": 1}\n")
	testfiles.Write(t, filepath.Join(dir, name+".txt"), daemontest.Evil)
	testfiles.Write(t, filepath.Join(dir, name+".json"), `{"apiVersion":"v1","kind":`+jsonText(daemontest.Evil)+`,"metadata":{"name":"x"}}`)
	testfiles.Write(t, filepath.Join(dir, "evil.yaml"), "nodeName: "+strconv.QuoteToASCII(daemontest.Evil)+"\n"+strconv.QuoteToASCII(daemontest.Evil)+": "+strconv.QuoteToASCII(daemontest.Evil)+"\nsources: [{name: "+strconv.QuoteToASCII(daemontest.Evil)+", url: "+strconv.QuoteToASCII("http://"+daemontest.Evil)+"}]\n")
	good := d.Path("good.yaml")
	testfiles.Write(t, good, daemontest.PodYAML("web", "x"))
	covered := map[string]bool{}
	run := func(socket string, args []string) {
		p := d.Program()
		p.Env.Environ = []string{"MONOPOD_SOCKET=" + socket}
		out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
		p.Stdout, p.Stderr = out, errs
		commands(t.Context(), p, args)
		covered[args[0]] = true
		if args[0] == "completion" || args[0] == "logs" { // scripts are constants with tabs; a log is printed as it is
			return
		}
		for _, text := range []string{out.String(), errs.String()} {
			if bad := daemontest.ActedOn(text); bad != "" {
				t.Errorf("monopod %q: %s in\n%q", args, bad, text)
			}
		}
	}
	answers, errors := hostileDaemon(t, false), hostileDaemon(t, true)
	for _, args := range clientCommands(good) {
		run(errors, args)
		if i := slices.Index(args, "web"); i >= 0 {
			for n := range 4 {
				each := slices.Clone(args)
				each[i] = fmt.Sprintf("web%d", n)
				run(answers, each)
			}
			continue
		}
		run(answers, args)
	}
	for _, args := range localCommands(dir) {
		run(answers, args)
	}
	for _, cmd := range newCommands().root().Commands() {
		if !covered[cmd.Name()] {
			t.Errorf("nothing runs `monopod %s`", cmd.Name())
		}
	}
}

func jsonText(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
