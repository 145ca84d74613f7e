package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/events"
	"monopod/node/why"
	"monopod/runner/ctrd/logs"
	"monopod/watcher"
)

func (p *program) whyCommand() *cobra.Command {
	o := &clientFlags{}
	var output, file string
	cmd := &cobra.Command{
		Use:   "why [POD|KIND/NAME]",
		Short: "Say why a pod is as it is, and what can be done; without POD, about everything that is not fine",
		Long: "For each pod it says where it is wanted, what runs, what is in the way and what stands behind that, the last lines of a\n" +
			"container that ended, what happens next and when, and what a person can do. Without POD it covers every pod, file\n" +
			"and source that is not as it should be, and says so when all is fine. POD may also be the name of a Deployment and\n" +
			"its like, for its pods, or one that does not exist: then it says what may be meant.\n\n" +
			"It answers while containerd or the network is down. When the daemon does not run, it says so and tells what is\n" +
			"known from the disk, of the instance that --config names. `-o json` has one object for each chain, with steps of the kinds wanted, runs, cause, output,\n" +
			"events, next and action; the reasons of causes do not change between releases.\n\n" +
			"Exit code 0: it has answered, whatever the answer is, and a daemon that does not run is one; 1: it could not.",
		Args: rangeArgs(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOfOutputs(output, "text", "json"); err != nil {
				return err
			}
			key := manifests.Key{Namespace: o.namespace}
			if len(args) > 0 {
				target, err := o.objectArg(args) // a workload is found by its name
				if err != nil {
					return err
				}
				key = target.key
			}
			return p.why(cmd.Context(), whyRequest{clientFlags: *o, key: key, output: output, config: file})
		},
	}
	o.add(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: text (default) or json")
	cmd.Flags().StringVar(&file, "config", "", "configuration `file` of the instance (default "+config.DefaultFile+" if it exists)")
	return cmd
}

// whyRequest is a question, and of which instance it is asked.
type whyRequest struct {
	clientFlags
	key    manifests.Key
	output string
	// config is the file of its configuration; empty: the default one.
	config string
}

func (p *program) why(ctx context.Context, q whyRequest) error {
	if q.config != "" && q.socket == "" {
		cfg, err := config.Load(&config.Flags{File: q.config}, p.env)
		if err != nil {
			return err
		}
		q.socket = cfg.Socket
	}
	answer, err := p.client(&q.clientFlags).Why(ctx, q.key.Namespace, q.key.Name)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) { // it has ended while it was asked
		answer, err = p.client(&q.clientFlags).Why(ctx, q.key.Namespace, q.key.Name)
	}
	if down, hangs := unanswered(err); down {
		answer, err = p.whyWithoutDaemon(ctx, q, why.Facts{Now: time.Now(), Daemon: silence(err), Hangs: hangs}), nil
	}
	if err != nil {
		return err
	}
	if q.output == "json" {
		return p.printObject(answer, q.output)
	}
	p.out().Lines(answer.Print(func(t time.Time) string { return t.Local().Format(time.TimeOnly) }))
	return nil
}

// unanswered reports whether an error means that no daemon could be asked, or, with hangs, that it did not answer, or not as monopod does.
func unanswered(err error) (down, hangs bool) {
	if errors.Is(err, fs.ErrPermission) {
		return false, false
	}
	_, down = errors.AsType[*node.ConnectError](err)
	_, late := errors.AsType[*node.TimeoutError](err)
	_, garbled := errors.AsType[*node.AnswerError](err)
	return down || late || garbled, late || garbled
}

// silence is why no daemon could be asked. What to do about it is for the answer to say, which knows the instance.
func silence(err error) string {
	if e, ok := errors.AsType[*node.ConnectError](err); ok {
		return e.Cause()
	}
	return err.Error()
}

// whyWithoutDaemon answers from the configuration, the manifests, the record of events and the logs on disk.
func (p *program) whyWithoutDaemon(ctx context.Context, q whyRequest, f why.Facts) why.Answer {
	key := q.key
	cfg, err := config.Load(&config.Flags{File: q.config}, p.env)
	if err != nil {
		f.Daemon += "; and its configuration is not right: " + printer.OneLine(err.Error())
		return f.About(key.Namespace, key.Name)
	}
	if q.elsewhere(cfg) {
		f.Instance.Socket = cmp.Or(q.socket, cfg.Socket)
		f.Instance.PID = node.SocketOwner(ctx, f.Instance.Socket)
		f.Daemon += "; what its instance has on the disk is not known: name its configuration with --config"
		return f.About(key.Namespace, key.Name)
	}
	f.Places = placesOf(cfg)
	f.Instance = p.host.instanceOf(cfg)
	f.Instance.PID = node.SocketOwner(ctx, cfg.Socket)
	p.fromDisk(ctx, cfg, &f, key)
	return f.About(key.Namespace, key.Name)
}

// elsewhere says that the question was sent to a socket of another instance than the configuration is of.
func (c *clientFlags) elsewhere(cfg *config.Loaded) bool {
	if c.socket != "" {
		return cfg.Socket != c.socket
	}
	fromEnvironment := cfg.Sources["socket"] == config.Key{Path: "socket"}.Env()
	return fromEnvironment && strings.HasPrefix(cfg.Sources["rootDirectory"], "default")
}

// fromDisk adds what manifests, what was applied, events and logs tell.
func (p *program) fromDisk(ctx context.Context, cfg *config.Loaded, f *why.Facts, key manifests.Key) {
	dirs := []struct{ source, path, security string }{
		{config.SourceFile, cfg.StaticPodPath, cfg.StaticPodPathSecurity},
		{config.SourceApplied, filepath.Join(cfg.RootDirectory, "applied"), cfg.AppliedSecurity},
	}
	r := readRecords(cfg)
	for _, d := range dirs {
		if _, err := os.Stat(d.path); err != nil {
			continue
		}
		for _, v := range p.verdicts(d.path, manifests.Options{Source: d.source, Policy: cfg.Policy(d.security)}) {
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
			r.add(ctx, f, key, v.loaded)
		}
	}
	for _, s := range cfg.Remotes() {
		in := why.Input{Source: s.Name, Input: watcher.RedactURL(s.URL), State: string(watcher.Accepted)}
		pods, err := cfg.StoredPods(&s, in.Input)
		if errors.Is(err, fs.ErrNotExist) {
			in.State, err = string(watcher.Unreachable), errors.New("it has never answered, as far as the disk tells")
		}
		if err != nil {
			in.Errors = []string{err.Error()}
		}
		f.Inputs = append(f.Inputs, in)
		r.add(ctx, f, key, pods)
	}
	f.Named = namesInRefused(f.Inputs)
}

// records are what the disk knows of pods, each read once.
type records struct {
	events map[manifests.Key][]corev1.Event
	// logs are the directories with the logs of the pods of a name.
	logs map[manifests.Key][]string
}

// readRecords reads what it can.
func readRecords(cfg *config.Loaded) records {
	r := records{events: map[manifests.Key][]corev1.Event{}, logs: map[manifests.Key][]string{}}
	found, _ := events.Read(recordIn(cfg.RootDirectory), events.Filter{Kind: "Pod"})
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

// add adds pods to what is known: all of those that are asked about, of others where they are.
func (r records) add(ctx context.Context, f *why.Facts, key manifests.Key, pods []*manifests.Pod) {
	for _, pod := range pods {
		switch {
		case key.Name == "" && key.Namespace != "" && key.Namespace != pod.Object.Namespace:
		case key.Name == "" || mayMean(pod.Object, key.Namespace, key.Name):
			f.Pods = append(f.Pods, r.pod(ctx, pod))
		default:
			f.Pods = append(f.Pods, why.Pod{Object: unseen(pod), Where: place(pod.Origin)})
		}
	}
}

// pod is what events and logs tell of a pod.
func (r records) pod(ctx context.Context, pod *manifests.Pod) why.Pod {
	object := unseen(pod)
	return why.Pod{Object: object, Where: place(pod.Origin), Output: lastOutput(ctx, r.logs[pod.Key()], object), Events: eventLines(r.events[pod.Key()])}
}

// unseen is how a pod is shown of which nothing is known but its manifest.
func unseen(pod *manifests.Pod) *corev1.Pod { return unknown(pod.Object) }

// unknown is a pod without what is said of its state. It shares the rest with pod.
func unknown(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: pod.ObjectMeta, Spec: pod.Spec, Status: corev1.PodStatus{Phase: corev1.PodUnknown}}
}

// lastEvents is how many events of a pod are shown.
const lastEvents = 5

// eventLines are the last of some events, a line each.
func eventLines(all []corev1.Event) []string {
	latest := all[max(0, len(all)-lastEvents):]
	var lines []string
	for i := range latest {
		e := &latest[i]
		lines = append(lines, fmt.Sprintf("%s %s: %s", e.LastTimestamp.Local().Format(time.DateTime), e.Reason, printer.OneLine(e.Message)))
	}
	return lines
}

// lastOutput reads the last lines of each container from the newest log there is in the directories of a pod's name.
func lastOutput(ctx context.Context, dirs []string, pod *corev1.Pod) map[string][]string {
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
