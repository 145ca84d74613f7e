package describe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/offline"
	"monopod/internal/program"
	"monopod/internal/units"
	"monopod/node/events"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// EventsOptions are the flags of `events`.
type EventsOptions struct {
	program.ClientFlags
	Output string
	record string
	Watch  bool
	// NoHeaders belongs to `get events`.
	NoHeaders bool
}

// EventsCommand returns `monopod events`.
func (p Commands) EventsCommand() *cobra.Command {
	o := &EventsOptions{}
	cmd := &cobra.Command{
		Use:   "events [POD|KIND/NAME]",
		Short: "Show events of pods, sources and monopod",
		Long: "Shows events of all namespaces, of one with -n, or of one pod or object, the oldest first. Reasons are those of the kubelet where it has them. `-o " +
			"json` is a v1 EventList; with -w, one v1 Event after the other.\n\n" +
			"Events are kept on disk across restarts and reboots (events/ of the root directory); the oldest are deleted first. They are ordered by boot and the " +
			"time since boot, so a wrong clock does not reorder them. If the daemon is not running, the command reads the files.",
		Example: "monopod events web\nmonopod events -n default\nmonopod events -w",
		Args:    program.RangeArgs(0, 1),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.Events(cmd.Context(), o, args) },
	}
	o.Add(cmd.Flags())
	cmd.Flags().StringVarP(&o.Output, "output", "o", "", "output `format`: json or yaml")
	cmd.Flags().StringVar(&o.record, "record", "", "read events from this `directory` instead of the daemon")
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", false, "show new events until interrupted")
	return cmd
}

// Events prints the events of all objects, or of the one in args.
func (p Commands) Events(ctx context.Context, o *EventsOptions, args []string) error {
	if err := program.OneOfOutputs(o.Output, "json", "yaml"); err != nil {
		return err
	}
	f := events.Filter{Namespace: o.Namespace}
	if len(args) > 0 {
		target, err := o.ObjectArg(args)
		if err != nil {
			return err
		}
		f = events.Filter{Kind: target.Kind, Namespace: target.Key.Namespace, Name: target.Key.Name}
	}
	switch {
	case o.record != "" && o.Watch:
		return program.Usagef("--record and --watch are mutually exclusive")
	case o.Watch:
		return p.watchEvents(ctx, p.Client(&o.ClientFlags), o.Output, f)
	}
	list, err := p.findEvents(ctx, o, f)
	if err != nil {
		return err
	}
	if o.Output != "" {
		return p.PrintObject(list, o.Output)
	}
	if len(list.Items) == 0 {
		p.Errs().Println("No events found.")
		return nil
	}
	t, now := p.Table(), time.Now()
	rows := [][]string{eventHeader()}
	if o.NoHeaders {
		rows = nil
	}
	for i := range list.Items {
		rows = append(rows, eventRow(&list.Items[i], now))
	}
	t.PrintAll(rows)
	return nil
}

// findEvents requests events from the daemon, or reads them from disk if there is no daemon.
func (p Commands) findEvents(ctx context.Context, o *EventsOptions, f events.Filter) (*corev1.EventList, error) {
	if o.record != "" {
		return recordedEvents(o.record, f)
	}
	list, err := p.Client(&o.ClientFlags).Events(ctx, f)
	if down, _ := unanswered(err); !down {
		return list, err
	}
	cfg, badConfig := config.Load(&config.Flags{}, p.Env)
	if badConfig != nil {
		return nil, err
	}
	if o.Elsewhere(cfg) { // the disk of another instance has other events
		return nil, fmt.Errorf("%w; to read the events of its instance from disk, use --record with the directory events in its rootDirectory", err)
	}
	dir := offline.RecordIn(cfg.RootDirectory)
	list, readErr := recordedEvents(dir, f)
	if readErr != nil {
		return nil, errors.Join(err, readErr)
	}
	p.Errs().Printf("warning: %v\nThese are the events on disk, in %s:\n", err, dir)
	return list, nil
}

// recordedEvents reads events from disk.
func recordedEvents(dir string, f events.Filter) (*corev1.EventList, error) {
	items, err := events.Read(dir, f)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return &corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: append([]corev1.Event{}, items...)}, nil
}

// watchEvents prints a line, or an object, for each existing and each new event.
func (p Commands) watchEvents(ctx context.Context, c *localclient.Client, output string, f events.Filter) error {
	t := p.Table()
	header := false
	return c.WatchEvents(ctx, f, func(e localapi.EventChange) error {
		switch output {
		case "json":
			return p.PrintObject(e.Object, "json")
		case "yaml":
			p.Out().Println("---")
			return p.PrintObject(e.Object, "yaml")
		}
		row := eventRow(&e.Object, time.Now())
		if !header {
			t.Fit(row)
			t.Print(eventHeader())
			header = true
		}
		t.Print(row)
		return nil
	})
}

func eventHeader() []string {
	return []string{"LAST SEEN", "TYPE", "REASON", "NAMESPACE", "OBJECT", "MESSAGE"}
}

func eventRow(e *corev1.Event, now time.Time) []string {
	return []string{
		seen(e, now), e.Type, e.Reason, cmp.Or(e.InvolvedObject.Namespace, "-"), eventObject(e), strings.ReplaceAll(e.Message, "\n", "; "),
	}
}

// seen returns when an event last occurred, and how often since when.
func seen(e *corev1.Event, now time.Time) string {
	text := units.Ago(e.LastTimestamp.Time, now)
	if e.Count > 1 {
		text += fmt.Sprintf(" (x%d over %s)", e.Count, units.Ago(e.FirstTimestamp.Time, now))
	}
	return text
}

// eventObject returns, for example, pod/web{container}, node/edge, or the path of an input.
func eventObject(e *corev1.Event) string {
	o := e.InvolvedObject
	if o.Kind == events.KindInput {
		return o.Name
	}
	_, container, _ := strings.Cut(o.FieldPath, "{")
	if container != "" {
		container = "{" + container
	}
	return strings.ToLower(o.Kind) + "/" + o.Name + container
}

// shownEvents is the number of latest events of a pod in `describe`.
const shownEvents = 20

// events prints the latest events of a pod.
func (d *description) events(all []corev1.Event) {
	if len(all) == 0 {
		return
	}
	d.w.Println("Events:")
	if more := len(all) - shownEvents; more > 0 {
		d.w.Printf("  (%d more: see `monopod events`)\n", more)
		all = all[more:]
	}
	rows := [][]string{{"  TYPE", "REASON", "AGE", "CONTAINER", "MESSAGE"}}
	for i := range all {
		e := &all[i]
		_, container, _ := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{")
		rows = append(rows, []string{"  " + e.Type, e.Reason, seen(e, d.now), cmp.Or(container, "-"), strings.ReplaceAll(e.Message, "\n", "; ")})
	}
	(&program.Table{W: d.w}).PrintAll(rows)
}
