package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"monopod/events"
	"monopod/manifests"
	"monopod/node"
	"monopod/runner/ctrd/logs"
	"monopod/watcher"
	"monopod/why"
)

func (p *program) whyCommand() *cobra.Command {
	o := &clientFlags{}
	var output string
	cmd := &cobra.Command{
		Use:   "why [POD]",
		Short: "Say why a pod is as it is, and what can be done; without POD, about everything that is not fine",
		Long: "For each pod it says where it is wanted, what runs, what is in the way and what stands behind that, the last lines of a\n" +
			"container that ended, what happens next and when, and what a person can do. Without POD it covers every pod, file\n" +
			"and source that is not as it should be, and says so when all is fine. POD may also be the name of a Deployment and\n" +
			"its like, for its pods, or one that does not exist: then it says what may be meant.\n\n" +
			"It answers while containerd or the network is down. When the daemon does not run, it says so and tells what is\n" +
			"known from the disk. `-o json` has one object for each chain, with steps of the kinds wanted, runs, cause, output,\n" +
			"events, next and action; the reasons of causes do not change between releases.\n\n" +
			"Exit code 0: it has answered, whatever the answer is, and a daemon that does not run is one; 1: it could not.",
		Args: rangeArgs(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOfOutputs(output, "text", "json"); err != nil {
				return err
			}
			key := manifests.Key{Namespace: o.namespace}
			if len(args) > 0 {
				var err error
				if key, err = o.podArg(args); err != nil {
					return err
				}
			}
			return p.why(cmd.Context(), o, key, output)
		},
	}
	o.add(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: text (default) or json")
	return cmd
}

func (p *program) why(ctx context.Context, o *clientFlags, key manifests.Key, output string) error {
	answer, err := p.client(o).Why(ctx, key.Namespace, key.Name)
	if down, ok := errors.AsType[*node.ConnectError](err); ok && !errors.Is(err, fs.ErrPermission) {
		answer, err = p.whyWithoutDaemon(ctx, key, down), nil
	}
	if err != nil {
		return err
	}
	if output == "json" {
		return p.printObject(answer, output)
	}
	_, err = fmt.Fprint(p.stdout, answer.Print(func(t time.Time) string { return t.Local().Format(time.TimeOnly) }))
	return err
}

// whyWithoutDaemon answers from the configuration, the manifests, the record of events and the logs on disk.
func (p *program) whyWithoutDaemon(ctx context.Context, key manifests.Key, down *node.ConnectError) why.Answer {
	f := why.Facts{Now: time.Now(), Daemon: down.Error()}
	cfg, err := LoadConfig(&configFlags{}, p.env)
	if err != nil {
		f.Daemon += "; and its configuration is not right: " + oneLine(err.Error())
		return f.About(key.Namespace, key.Name)
	}
	f.Places = placesOf(cfg)
	p.fromDisk(ctx, cfg, &f, key)
	return f.About(key.Namespace, key.Name)
}

// fromDisk adds what manifests, what was applied, events and logs tell.
func (p *program) fromDisk(ctx context.Context, cfg *LoadedConfig, f *why.Facts, key manifests.Key) {
	dirs := []struct{ source, path, security string }{
		{sourceFile, cfg.StaticPodPath, cfg.StaticPodPathSecurity},
		{sourceApplied, filepath.Join(cfg.RootDirectory, "applied"), cfg.AppliedSecurity},
	}
	for _, d := range dirs {
		if _, err := os.Stat(d.path); err != nil {
			continue
		}
		for _, v := range p.verdicts(d.path, manifests.Options{Source: d.source, Policy: cfg.policy(d.security)}) {
			if v.File == d.path && len(v.loaded) == 0 { // an empty directory
				continue
			}
			in := why.Input{Source: d.source, Input: v.File, State: string(watcher.Accepted)}
			if v.Ignored {
				in.State = string(watcher.Ignored)
			}
			for _, e := range v.Errors {
				in.State = string(watcher.Refused)
				in.Errors = append(in.Errors, e.Error())
			}
			f.Inputs = append(f.Inputs, in)
			for _, pod := range v.loaded {
				if key.Name != "" || key.Namespace == "" || key.Namespace == pod.Object.Namespace {
					f.Pods = append(f.Pods, podFromDisk(ctx, cfg, pod))
				}
			}
		}
	}
	f.Named = namesInRefused(f.Inputs)
}

// podFromDisk is what events and logs tell of a pod.
func podFromDisk(ctx context.Context, cfg *LoadedConfig, pod *manifests.Pod) why.Pod {
	object := pod.Object.DeepCopy()
	object.Status = corev1.PodStatus{Phase: corev1.PodUnknown}
	w := why.Pod{Object: object, Where: place(pod.Origin), Output: lastOutput(ctx, cfg.PodLogsDir, object)}
	found, _ := events.Read(recordIn(cfg.RootDirectory), podEvents(object.Namespace, object.Name)) // it tells what it can
	w.Events = eventLines(found)
	return w
}

// lastEvents is how many events of a pod are shown.
const lastEvents = 5

// eventLines are the last of some events, a line each.
func eventLines(all []corev1.Event) []string {
	latest := all[max(0, len(all)-lastEvents):]
	var lines []string
	for i := range latest {
		e := &latest[i]
		lines = append(lines, fmt.Sprintf("%s %s: %s", e.LastTimestamp.Local().Format(time.DateTime), e.Reason, oneLine(e.Message)))
	}
	return lines
}

// lastOutput reads the last lines of each container from the newest log there is of a pod of this name.
func lastOutput(ctx context.Context, podLogsDir string, pod *corev1.Pod) map[string][]string {
	dirs, _ := filepath.Glob(filepath.Join(podLogsDir, pod.Namespace+"_"+pod.Name+"_*"))
	lines := map[string][]string{}
	for _, name := range node.ContainerNames(pod) {
		var newest string
		var at time.Time
		for _, dir := range dirs {
			files, _ := filepath.Glob(filepath.Join(dir, name, "*.log"))
			for _, file := range files {
				if info, err := os.Stat(file); err == nil && info.Size() > 0 && info.ModTime().After(at) {
					newest, at = file, info.ModTime()
				}
			}
		}
		if newest == "" {
			continue
		}
		var out strings.Builder
		if err := logs.Read(ctx, newest, logs.ReadOptions{Tail: lastLines}, &out, &out); err == nil {
			lines[name] = splitLines(out.String())
		}
	}
	return lines
}
