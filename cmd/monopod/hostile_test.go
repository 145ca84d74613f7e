package main

import (
	"encoding/json"
	"fmt"
	"monopod/internal/config"
	"monopod/internal/testfiles"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/manifests"
	"monopod/node"
	"monopod/node/why"
)

// evil is text as a container may write it: each kind of character that a terminal may act on, and lines that look like others.
const evil = "a\x1b[2J\x1b]0;t\a\u009b31m\x7f\u202e\u2066\u200b\ufeff\u2028\nFORGED\r\nFORGED\rFORGED\t\v\fz"

// fill puts evil into each string of a value, and one or two elements into each list.
func fill(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1e9, 0))))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1e9, 0)))
		return
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("1")))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(evil)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint64:
		v.SetUint(3)
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range 2 {
				fill(v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if depth > 0 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, depth-1)
			fill(value, depth-1)
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth-1)
			}
		}
	}
}

// hostile is a T all of whose strings are evil.
func hostile[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem(), 12)
	return v
}

// hostilePods have states that reach each line of `describe`, the first one running, with its volumes and probes.
func hostilePods() corev1.PodList {
	list := corev1.PodList{Items: []corev1.Pod{hostile[corev1.Pod](), hostile[corev1.Pod](), hostile[corev1.Pod](), hostile[corev1.Pod]()}}
	probes, err := json.Marshal(hostile[[]node.Probe]())
	if err != nil {
		panic(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if i > 0 {
			p.DeletionTimestamp = nil
		}
		p.Annotations = map[string]string{evil: evil, node.AnnotationProbes: string(probes)}
		for _, own := range []string{node.AnnotationSource, node.AnnotationWhy, node.AnnotationNextTry, node.AnnotationManifest, node.AnnotationRevision, node.AnnotationRollback, node.AnnotationUpdate} {
			p.Annotations[own] = evil
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
		w.Header().Set("Warning", "299 monopod "+strconv.Quote(evil))
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
	mux.HandleFunc("GET /v1/pods", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			send(w, pods)
			return
		}
		for _, kind := range []string{"ADDED", evil, "DELETED"} {
			send(w, map[string]any{"type": kind, "object": pods.Items[1]})
		}
	})
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(strings.TrimPrefix(r.PathValue("name"), "web"))
		send(w, pods.Items[i])
	})
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/revisions", one(hostileHistory()))
	mux.HandleFunc("POST /v1/pods/{namespace}/{name}/rollback", one(hostileHistory()))
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		list := hostile[corev1.EventList]()
		if r.URL.Query().Get("watch") == "" {
			send(w, list)
			return
		}
		send(w, map[string]any{"type": "ADDED", "object": list.Items[0]})
	})
	mux.HandleFunc("GET /v1/sources", one(hostile[[]node.Input]()))
	mux.HandleFunc("GET /v1/why", one(hostile[why.Answer]()))
	mux.HandleFunc("GET /v1/why/{namespace}/{name}", one(hostile[why.Answer]()))
	mux.HandleFunc("GET /v1/objects", func(w http.ResponseWriter, r *http.Request) {
		send(w, map[string]any{"items": slices.DeleteFunc(hostileObjects(), func(o any) bool {
			kind := r.URL.Query().Get("kind")
			return kind != "" && kind != o.(runtime.Object).GetObjectKind().GroupVersionKind().Kind
		})})
	})
	mux.HandleFunc("GET /v1/agent", one(hostile[node.Agent]()))
	mux.HandleFunc("GET /v1/drain", one(hostile[node.Schedule]()))
	mux.HandleFunc("PUT /v1/drain", one(hostile[node.Schedule]()))
	mux.HandleFunc("GET /v1/images", one(hostile[node.ImageList]()))
	mux.HandleFunc("GET /v1/images/pulls", one(hostile[[]node.ImagePull]()))
	mux.HandleFunc("POST /v1/images/pull", func(w http.ResponseWriter, _ *http.Request) {
		for _, state := range []string{node.PullPulling, node.PullPulled, node.PullFailed, evil} {
			e := hostile[node.PullEvent]()
			e.State = state
			send(w, e)
		}
	})
	applied := hostile[node.ApplyResult]()
	applied.Objects[1].Verdict = node.NotFound
	mux.HandleFunc("/v1/applied", one(applied))
	mux.HandleFunc("GET /stats/summary", one(hostile[statsapi.Summary]()))
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/files", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Monopod-Warning, Monopod-Error")
		_, _ = w.Write([]byte(evil))
		w.Header().Set("Monopod-Error", "a\x1b[2J\u202e")
	})
	mux.HandleFunc("PUT /v1/pods/{namespace}/{name}/files", one(node.Written{Warnings: []string{evil}}))
	handler := http.Handler(mux)
	if onlyErrors {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			if strings.HasSuffix(r.URL.Path, "/pods") { // no Status
				_, _ = w.Write([]byte(evil))
				return
			}
			send(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Message: evil, Reason: metav1.StatusReason(evil)})
		})
	}
	return serveOn(t, handler)
}

// hostileObjects has one of each kind that has columns; the first pod of the daemon is theirs.
func hostileObjects() []any {
	all := []any{
		of("Deployment", hostile[appsv1.Deployment]()), of("ReplicaSet", hostile[appsv1.ReplicaSet]()), of("StatefulSet", hostile[appsv1.StatefulSet]()), of("DaemonSet", hostile[appsv1.DaemonSet]()),
		of("Job", hostile[batchv1.Job]()), of("CronJob", hostile[batchv1.CronJob]()), of("Service", hostile[corev1.Service]()), of("ConfigMap", hostile[corev1.ConfigMap]()), of("Secret", hostile[corev1.Secret]()),
		of("PersistentVolumeClaim", hostile[corev1.PersistentVolumeClaim]()), of("Node", hostile[corev1.Node]()), of("StorageClass", hostile[corev1.ConfigMap]()),
	}
	return all
}

func of[T any](kind string, v T) any {
	o := any(&v).(runtime.Object)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: "x", Version: "v1", Kind: kind})
	return o
}

func hostileHistory() node.History {
	h := hostile[node.History]()
	for i := range h.Revisions {
		h.Revisions[i].Number = i + 1
		h.Revisions[i].Manifest, _ = json.Marshal(map[string]any{evil: evil, "n": strings.Repeat(evil, i+1)})
	}
	h.Active, h.Wanted = 1, 2
	return h
}

// serveOn serves on a socket of its own.
func serveOn(t *testing.T, h http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() { _, _ = s.Close(), <-done })
	return socket
}

// clientCommands are command lines of all commands that ask the daemon; those that name web come with each of the pods.
func clientCommands(manifest string) [][]string {
	return [][]string{
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
		{"pull", evil},
		{"pull", evil, "-o", "json"},
		{"exec", "web", "--", "true"},
		{"attach", "web"},
		{"port-forward", "web", "x"},
		{"port-forward", "web", "0", "--address", evil},
		{"cp", "web:/x", "out/"},
		{"cp", manifest, "web:/x"},
		{"top", "pods"},
		{"top", "containers"},
		{"top", "node"},
		{"top", "pod", "web"},
	}
}

// localCommands ask nobody: they read files whose names and contents are evil.
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
		{"config", "--nodeName", evil},
		{"config", "--nodeName", evil, "-o", "json"},
		{"run", "--config", evil},
		{"run", evil},
		{"down", evil},
		{"cleanup", "--config", evil},
		{"install", "--config", evil},
		{"uninstall", "--config", evil},
		{"version", evil},
		{"version"},
		{evil},
		{"get", evil},
		{"get", "pods", "-o", evil},
		{"get", "pods", "--" + evil},
		{"get", "pods", "--watch=" + evil},
		{"wait", "x", "--for=" + evil},
		{"completion", "bash", evil},
		{"completion", "bash"},
		{"__complete", "get", "pod", ""},
		{"help", evil},
		{"logs", "web", "--since-time", evil},
		{"delete", evil, evil},
		{"exec", evil, "--", "x"},
		{"cp", evil, evil},
		{"top", evil, "x"},
		{"events", "--record", evil},
		{"get", "pods", "-o", "jsonpath={" + evil},
		{"get", "pods", "-o", "custom-columns=" + evil},
		{"get", "pods", "-l", evil},
		{"get", "deploy/" + evil},
		{"scale", evil},
		{"restart", evil + "/x"},
		{"why", "--socket", "/nonexistent/" + evil},
		{"get", "pods", "--socket", "/nonexistent/" + evil},
	}
}

// TestNoCommandPrintsWhatATerminalActsOn runs every command against a daemon, files and arguments all of whose strings are evil.
func TestNoCommandPrintsWhatATerminalActsOn(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	dir := d.path("manifests", "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(evil, "/", "")
	testfiles.Write(t, filepath.Join(dir, name+".yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: "+strconv.QuoteToASCII(evil)+", "+strconv.QuoteToASCII(evil)+": 1}\n")
	testfiles.Write(t, filepath.Join(dir, name+".txt"), evil)
	testfiles.Write(t, filepath.Join(dir, name+".json"), `{"apiVersion":"v1","kind":`+jsonText(evil)+`,"metadata":{"name":"x"}}`)
	testfiles.Write(t, filepath.Join(dir, "evil.yaml"), "nodeName: "+strconv.QuoteToASCII(evil)+"\n"+strconv.QuoteToASCII(evil)+": "+strconv.QuoteToASCII(evil)+"\nsources: [{name: "+strconv.QuoteToASCII(evil)+", url: "+strconv.QuoteToASCII("http://"+evil)+"}]\n")
	good := d.path("good.yaml")
	testfiles.Write(t, good, podYAML("web", "x"))
	covered := map[string]bool{}
	run := func(socket string, args []string) {
		p := d.program()
		p.env.Environ = []string{"MONOPOD_SOCKET=" + socket}
		out, errs := &syncBuffer{}, &syncBuffer{}
		p.stdout, p.stderr = out, errs
		p.run(t.Context(), args)
		covered[args[0]] = true
		if args[0] == "completion" || args[0] == "logs" { // scripts are constants with tabs; a log is printed as it is
			return
		}
		for _, text := range []string{out.String(), errs.String()} {
			if bad := actedOn(text); bad != "" {
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
	for _, cmd := range d.program().root().Commands() {
		if !covered[cmd.Name()] {
			t.Errorf("nothing runs `monopod %s`", cmd.Name())
		}
	}
}

func jsonText(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// actedOn is the first character that a terminal may act on, or a forged line.
func actedOn(text string) string {
	for i, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			return fmt.Sprintf("%U at %d", r, i)
		}
	}
	if strings.HasPrefix(text, "FORGED") || strings.Contains(text, "\nFORGED") {
		return "a forged line"
	}
	return ""
}

// TestTheLogOfTheDaemonCannotBeForged: what is logged may be said by anybody.
func TestTheLogOfTheDaemonCannotBeForged(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var b strings.Builder
		log := newLogger(&b, config.Logging{Level: "info", Format: format})
		log.With(evil, evil).WithGroup(evil).Info(evil, evil, evil, "err", fmt.Errorf("%s", evil), "key", manifests.Key{Namespace: evil, Name: evil}, "list", []string{evil}, "bytes", []byte(evil), "any", hostile[node.Input]())
		if bad := actedOn(b.String()); bad != "" || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("%s: %s in %q", format, bad, b.String())
		}
	}
}
