// Package offline collects what is stored on disk about pods, their events and logs, for `why` and other commands while no daemon is
// running.
//
// It must not change anything on the disk. It has no goroutines.
package offline

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/internal/printer"
	"monopod/internal/regular"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/node"
	"monopod/node/events"
	"monopod/node/why"
	"monopod/runner/ctrd/logs"
)

// PodEvents returns a filter for the events of one pod.
func PodEvents(namespace, name string) events.Filter {
	return events.Filter{Kind: "Pod", Namespace: namespace, Name: name}
}

// recordDirectory is the directory with events, below rootDirectory.
const recordDirectory = "events"

// RecordIn returns the directory with events of a root directory.
func RecordIn(root string) string { return filepath.Join(root, recordDirectory) }

// records are the events and log directories on disk, each read once.
type records struct {
	events map[manifests.Key][]corev1.Event
	// logs are the log directories of pods, by the name of the pod.
	logs map[manifests.Key][]string
}

// ReadRecords reads what it can; unreadable parts are omitted.
func ReadRecords(cfg *config.Loaded) records {
	r := records{events: map[manifests.Key][]corev1.Event{}, logs: map[manifests.Key][]string{}}
	found, _ := events.Read(RecordIn(cfg.RootDirectory), events.Filter{Kind: "Pod"})
	for i := range found {
		o := &found[i].InvolvedObject
		key := manifests.Key{Namespace: o.Namespace, Name: o.Name}
		r.events[key] = append(r.events[key], found[i])
	}
	dirs, _ := os.ReadDir(cfg.PodLogsDir)
	for _, d := range dirs {
		if parts := strings.SplitN(d.Name(), "_", 3); len(parts) == 3 { // of the namespace, the name and the uid
			key := manifests.Key{Namespace: parts[0], Name: parts[1]}
			r.logs[key] = append(r.logs[key], filepath.Join(cfg.PodLogsDir, d.Name()))
		}
	}
	return r
}

// Add adds pods to the facts: details only of those that match the key; of other pods only their names and files.
func (r records) Add(ctx context.Context, f *why.Facts, key manifests.Key, pods []*manifests.Pod) {
	for _, pod := range pods {
		switch {
		case key.Name == "" && key.Namespace != "" && key.Namespace != pod.Object.Namespace:
		case key.Name == "" || MayMean(pod.Object, key.Namespace, key.Name):
			f.Pods = append(f.Pods, r.pod(ctx, pod))
		default:
			f.Pods = append(f.Pods, why.Pod{Object: Unseen(pod), Where: verdict.Place(pod.Origin)})
		}
	}
}

// pod collects events and logs of a pod.
func (r records) pod(ctx context.Context, pod *manifests.Pod) why.Pod {
	object := Unseen(pod)
	return why.Pod{Object: object, Where: verdict.Place(pod.Origin), Output: lastOutput(ctx, r.logs[pod.Key()], object), Events: EventLines(r.events[pod.Key()])}
}

// Unseen returns the pod to show when only its manifest is known.
func Unseen(pod *manifests.Pod) *corev1.Pod { return Unknown(pod.Object) }

// Unknown returns a copy of pod with an empty status. Everything else is shared with pod.
func Unknown(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: pod.ObjectMeta, Spec: pod.Spec, Status: corev1.PodStatus{Phase: corev1.PodUnknown}}
}

// lastEvents is the maximum number of events shown per pod.
const lastEvents = 5

// EventLines formats the last events, one line each.
func EventLines(all []corev1.Event) []string {
	latest := all[max(0, len(all)-lastEvents):]
	var lines []string
	for i := range latest {
		e := &latest[i]
		lines = append(lines, fmt.Sprintf("%s %s: %s", e.LastTimestamp.Local().Format(time.DateTime), e.Reason, printer.OneLine(e.Message)))
	}
	return lines
}

// lastOutput reads the last lines of each container from the newest log in the log directories of a pod.
func lastOutput(ctx context.Context, dirs []string, pod *corev1.Pod) map[string][]string {
	lines := map[string][]string{}
	for _, name := range node.ContainerNames(pod) {
		var newest string
		var at time.Time
		for _, dir := range dirs {
			files, _ := os.ReadDir(filepath.Join(dir, name)) // it is missing before the first start
			for _, f := range files {
				file := filepath.Join(dir, name, f.Name())
				if !strings.HasSuffix(file, ".log") {
					continue
				}
				if info, err := os.Stat(file); err == nil && info.Size() > 0 && info.ModTime().After(at) {
					newest, at = file, info.ModTime()
				}
			}
		}
		if newest == "" {
			continue
		}
		var out strings.Builder
		if err := logs.Read(ctx, newest, logs.ReadOptions{Tail: LastLines}, &out, &out); err == nil {
			lines[name] = SplitLines(out.String())
		}
	}
	return lines
}

const (
	// LastLines is the number of lines shown per container, and lineLength the maximum length of each.
	LastLines  = 10
	lineLength = 400
)

// PlacesOf returns the paths that answers of `why` refer to.
func PlacesOf(cfg *config.Loaded) why.Places {
	p := why.Places{Applied: filepath.Join(cfg.RootDirectory, "applied"), Manifests: cfg.StaticPodPath, Logins: cfg.RegistryConfig, Endpoint: cfg.ContainerRuntimeEndpoint}
	if n := len(cfg.Files); n > 0 {
		p.Config = cfg.Files[n-1]
	}
	if len(cfg.PreloadDirectories) > 0 {
		p.Preload = cfg.PreloadDirectories[0]
	}
	return p
}

// MayMean reports whether name may refer to the pod or to the object for which it was created. For other pods, an answer contains only
// their names and files.
func MayMean(pod *corev1.Pod, namespace, name string) bool {
	owned := func(o metav1.OwnerReference) bool { return o.Name == name }
	return pod.Namespace == namespace && (pod.Name == name || slices.ContainsFunc(pod.OwnerReferences, owned))
}

// BareContainerID returns a container ID without the prefix of its runtime; empty if there is no container yet.
func BareContainerID(id string) string {
	_, bare, _ := strings.Cut(id, "://")
	return bare
}

// SplitLines splits text into lines of valid UTF-8, each of limited length.
func SplitLines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		line = strings.ToValidUTF8(strings.TrimRight(line, "\r\n"), "?")
		if len(line) > lineLength {
			line = strings.ToValidUTF8(line[:lineLength], "") + " ..." // the cut may split a character
		}
		all = append(all, line)
	}
	return all
}

// ObjectFacts returns what is known about objects besides pods; place returns where the author of a document edits it.
func ObjectFacts(objects []*manifests.Object, place func(manifests.Origin) string) []why.Object {
	var all []why.Object
	for _, o := range objects {
		w := why.Object{Kind: o.Kind, Namespace: o.Object.GetNamespace(), Name: o.Object.GetName(), Where: place(o.Origin)}
		switch c := o.Object.(type) {
		case *corev1.ConfigMap:
			w.Keys = slices.Concat(slices.Collect(maps.Keys(c.Data)), slices.Collect(maps.Keys(c.BinaryData)))
		case *corev1.Secret:
			w.Keys = slices.Collect(maps.Keys(c.Data))
		case *corev1.Service:
			w.Selector = c.Spec.Selector
		}
		all = append(all, w)
	}
	return all
}

// NamesInRefused returns the names of the documents in refused files.
func NamesInRefused(inputs []model.Input) []why.Object {
	var all []why.Object
	for _, in := range inputs {
		if in.State != model.InputRefused {
			continue
		}
		if !filepath.IsAbs(in.Input) { // what was refused of it is not kept
			for _, m := range in.Mistaken {
				all = append(all, why.Object{Kind: m.Kind, Namespace: m.Namespace, Name: m.Name, Where: m.Where})
			}
			continue
		}
		if b, err := regular.ReadFile(in.Input, document.MaxSize); err == nil {
			all = append(all, Names(in.Input, b)...)
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}
