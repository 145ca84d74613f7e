package describe

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"monopod/internal/cli/check"
	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/internal/offline"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node"
	"monopod/node/localclient"
	"monopod/node/why"
	"monopod/runner/workload"
	"monopod/watcher/fetch"
)

// WhyCommand returns `monopod why`.
func (p Commands) WhyCommand() *cobra.Command {
	o := &program.ClientFlags{}
	var output, file string
	cmd := &cobra.Command{
		Use:   "why [POD|KIND/NAME]",
		Short: "Explain what is wrong and how to fix it",
		Long: "For each pod: where it is defined, what runs, the cause of the problem and what is behind it, the last output of a container that exited, what happens " +
			"next and when, and how to fix it. Without POD, covers every pod, file and source with a problem. POD may be the name of a workload, for its pods; for " +
			"an unknown name, similar names are suggested.\n\n" +
			"Works while containerd or the network is down. If the daemon is not running, reads the disk of the instance that --config names. " +
			"`-o json` prints one object per chain with steps of the kinds wanted, runs, cause, output, events, next and action; the reasons of causes are stable " +
			"between releases (`monopod docs why`).\n\n" +
			"Exit code 0: answered, also if something is wrong; 1: no answer.",
		Example: "monopod why\nmonopod why web\nmonopod why deploy/web -o json",
		Args:    program.RangeArgs(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := program.OneOfOutputs(output, "text", "json"); err != nil {
				return err
			}
			key := manifests.Key{Namespace: o.Namespace}
			if len(args) > 0 {
				target, err := o.ObjectArg(args) // a workload is found by its name
				if err != nil {
					return err
				}
				key = target.Key
			}
			return p.why(cmd.Context(), whyRequest{ClientFlags: *o, key: key, output: output, config: file})
		},
	}
	o.Add(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: text (default) or json")
	cmd.Flags().StringVar(&file, "config", "", "configuration `file` of the instance (default "+config.DefaultFile+" if it exists)")
	return cmd
}

// whyRequest is a request and the instance that it is for.
type whyRequest struct {
	program.ClientFlags
	key    manifests.Key
	output string
	// config is the path of its configuration file; empty means the default one.
	config string
}

func (p Commands) why(ctx context.Context, q whyRequest) error {
	if q.config != "" && q.Socket == "" {
		cfg, err := config.Load(&config.Flags{File: q.config}, p.Env)
		if err != nil {
			return err
		}
		q.Socket = cfg.Socket
	}
	answer, err := p.Client(&q.ClientFlags).Why(ctx, q.key.Namespace, q.key.Name)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) { // it has ended while it was asked
		answer, err = p.Client(&q.ClientFlags).Why(ctx, q.key.Namespace, q.key.Name)
	}
	if down, hangs := unanswered(err); down {
		answer, err = p.whyWithoutDaemon(ctx, q, why.Facts{Now: time.Now(), Daemon: silence(err), Hangs: hangs}), nil
	}
	if err != nil {
		return err
	}
	if q.output == "json" {
		return p.PrintObject(answer, q.output)
	}
	p.Out().Lines(answer.Print(func(t time.Time) string { return t.Local().Format(time.TimeOnly) }))
	return nil
}

// unanswered reports whether an error means that no daemon could be reached; hangs means that there is one, but it did not answer, or not
// like monopod.
func unanswered(err error) (down, hangs bool) {
	if errors.Is(err, fs.ErrPermission) {
		return false, false
	}
	_, down = errors.AsType[*localclient.ConnectError](err)
	_, late := errors.AsType[*localclient.TimeoutError](err)
	_, garbled := errors.AsType[*localclient.AnswerError](err)
	return down || late || garbled, late || garbled
}

// silence returns why no daemon could be reached. The answer adds the advice, because it knows the instance.
func silence(err error) string {
	if e, ok := errors.AsType[*localclient.ConnectError](err); ok {
		return e.Cause()
	}
	return err.Error()
}

// whyWithoutDaemon answers from the configuration, the manifests, the record of events and the logs on disk.
func (p Commands) whyWithoutDaemon(ctx context.Context, q whyRequest, f why.Facts) why.Answer {
	key := q.key
	cfg, err := config.Load(&config.Flags{File: q.config}, p.Env)
	if err != nil {
		f.Daemon += "; and its configuration is invalid: " + printer.OneLine(err.Error())
		return f.About(key.Namespace, key.Name)
	}
	if q.Elsewhere(cfg) {
		f.Instance.Socket = cmp.Or(q.Socket, cfg.Socket)
		f.Instance.PID = node.SocketOwner(ctx, f.Instance.Socket)
		f.Daemon += "; its data on disk cannot be found: name its configuration with --config"
		return f.About(key.Namespace, key.Name)
	}
	f.Places = offline.PlacesOf(cfg)
	f.Instance = p.Host.InstanceOf(cfg)
	f.Instance.PID = node.SocketOwner(ctx, cfg.Socket)
	p.fromDisk(ctx, cfg, &f, key)
	return f.About(key.Namespace, key.Name)
}

// fromDisk adds facts from manifests, applied objects, events and logs.
func (p Commands) fromDisk(ctx context.Context, cfg *config.Loaded, f *why.Facts, key manifests.Key) {
	dirs := []struct{ source, path string }{
		{config.SourceFile, cfg.StaticPodPath}, {config.SourceApplied, filepath.Join(cfg.RootDirectory, "applied")},
	}
	r := offline.ReadRecords(cfg)
	for _, d := range dirs {
		if _, err := os.Stat(d.path); err != nil {
			continue
		}
		for _, v := range check.NewCommands(p.Program).Verdicts([]string{d.path}, decode.Options{Source: d.source, Policy: cfg.Policy(d.source)}) {
			if v.File == d.path && len(v.Loaded) == 0 { // an empty directory
				continue
			}
			in := model.Input{Source: d.source, Input: v.File, State: model.InputAccepted}
			if v.Ignored {
				in.State = model.InputIgnored
			}
			for _, e := range v.Errors {
				in.State = model.InputRefused
				in.Errors = append(in.Errors, e.Error())
			}
			f.Inputs = append(f.Inputs, in)
			f.Objects = append(f.Objects, offline.ObjectFacts(slices.Concat(v.Documents, v.Workloads), verdict.Place)...)
			r.Add(ctx, f, key, withWorkloads(v.Loaded, v.Workloads))
		}
	}
	for _, s := range cfg.Remotes() {
		in := model.Input{Source: s.Name, Input: fetch.RedactURL(s.URL), State: model.InputAccepted}
		content, err := cfg.Stored(ctx, &s, in.Input)
		if errors.Is(err, fs.ErrNotExist) {
			in.State, err = model.InputUnreachable, errors.New("it has never answered: there is no cached answer on disk")
		}
		if err != nil {
			in.Errors = []string{err.Error()}
		}
		f.Inputs = append(f.Inputs, in)
		if content != nil {
			f.Objects = append(f.Objects, offline.ObjectFacts(slices.Concat(content.Objects, content.Workloads), verdict.Place)...)
			r.Add(ctx, f, key, withWorkloads(content.Pods, content.Workloads))
		}
	}
	f.Named = offline.NamesInRefused(f.Inputs)
}

// withWorkloads adds the pods of workloads. Those of Jobs and CronJobs come and go: only the daemon knows them.
func withWorkloads(pods []*manifests.Pod, workloads []*manifests.Object) []*manifests.Pod {
	all := slices.Clone(pods)
	for _, w := range workloads {
		all = append(all, workload.Final(w)...)
	}
	return all
}
