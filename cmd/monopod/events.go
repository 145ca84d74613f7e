package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/config"
	"monopod/node"
	"monopod/node/events"
)

// eventsOptions are the flags of `events`.
type eventsOptions struct {
	clientFlags
	output string
	record string
	watch  bool
	// noHeaders belongs to `get events`.
	noHeaders bool
}

func (p *program) eventsCommand() *cobra.Command {
	o := &eventsOptions{}
	cmd := &cobra.Command{
		Use:   "events [POD|KIND/NAME]",
		Short: "Show what happened to pods, to inputs and to monopod itself",
		Long: "Show events, the oldest first, of all namespaces or those of one with -n; with POD those of one pod. The words are\n" +
			"those of a kubelet where it has some. `-o json` is a v1 EventList, with -w one v1 Event after the other.\n\n" +
			"Events are kept on disk, in events/ of the root directory, over restarts and reboots; when there are too many, the\n" +
			"oldest go. They are ordered by boot and by the time since it: the wall clock, which may have been wrong, is only\n" +
			"shown. When monopod does not run, the command reads the files.",
		Args: rangeArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.events(cmd.Context(), o, args) },
	}
	o.add(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output `format`: json or yaml")
	cmd.Flags().StringVar(&o.record, "record", "", "read the events in this `directory` instead of asking the daemon")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on and show events as they come")
	return cmd
}

func (p *program) events(ctx context.Context, o *eventsOptions, args []string) error {
	if err := oneOfOutputs(o.output, "json", "yaml"); err != nil {
		return err
	}
	f := events.Filter{Namespace: o.namespace}
	if len(args) > 0 {
		target, err := o.objectArg(args)
		if err != nil {
			return err
		}
		f = events.Filter{Kind: target.kind, Namespace: target.key.Namespace, Name: target.key.Name}
	}
	switch {
	case o.record != "" && o.watch:
		return usagef("--record and --watch exclude each other")
	case o.watch:
		return p.watchEvents(ctx, p.client(&o.clientFlags), o.output, f)
	}
	list, err := p.findEvents(ctx, o, f)
	if err != nil {
		return err
	}
	if o.output != "" {
		return p.printObject(list, o.output)
	}
	if len(list.Items) == 0 {
		p.errs().Println("No events found.")
		return nil
	}
	t, now := p.table(), time.Now()
	rows := [][]string{eventHeader()}
	if o.noHeaders {
		rows = nil
	}
	for i := range list.Items {
		rows = append(rows, eventRow(&list.Items[i], now))
	}
	t.printAll(rows)
	return nil
}

// podEvents selects those of one pod.
func podEvents(namespace, name string) events.Filter {
	return events.Filter{Kind: "Pod", Namespace: namespace, Name: name}
}

// findEvents asks the daemon, or reads the record when there is none.
func (p *program) findEvents(ctx context.Context, o *eventsOptions, f events.Filter) (*corev1.EventList, error) {
	if o.record != "" {
		return recordedEvents(o.record, f)
	}
	list, err := p.client(&o.clientFlags).Events(ctx, f)
	if down, _ := unanswered(err); !down {
		return list, err
	}
	cfg, badConfig := config.Load(&config.Flags{}, p.env)
	if badConfig != nil {
		return nil, err
	}
	if o.elsewhere(cfg) { // the disk of another instance has other events
		return nil, fmt.Errorf("%w; to read what its instance has on the disk, give --record and the directory events in its rootDirectory", err)
	}
	dir := recordIn(cfg.RootDirectory)
	list, readErr := recordedEvents(dir, f)
	if readErr != nil {
		return nil, errors.Join(err, readErr)
	}
	p.errs().Printf("warning: %v\nThese are the events on disk, in %s:\n", err, dir)
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

// watchEvents prints a line, or an object, for each event there is and each that comes.
func (p *program) watchEvents(ctx context.Context, c *node.Client, output string, f events.Filter) error {
	t := p.table()
	header := false
	return c.WatchEvents(ctx, f, func(e node.EventChange) error {
		switch output {
		case "json":
			return p.printObject(e.Object, "json")
		case "yaml":
			p.out().Println("---")
			return p.printObject(e.Object, "yaml")
		}
		row := eventRow(&e.Object, time.Now())
		if !header {
			t.fit(row)
			t.print(eventHeader())
			header = true
		}
		t.print(row)
		return nil
	})
}

func eventHeader() []string {
	return []string{"LAST SEEN", "TYPE", "REASON", "NAMESPACE", "OBJECT", "MESSAGE"}
}

func eventRow(e *corev1.Event, now time.Time) []string {
	return []string{
		seen(e, now), e.Type, e.Reason, or(e.InvolvedObject.Namespace, "-"), eventObject(e), strings.ReplaceAll(e.Message, "\n", "; "),
	}
}

// seen says when an event came last, and how often since when.
func seen(e *corev1.Event, now time.Time) string {
	text := ago(e.LastTimestamp.Time, now)
	if e.Count > 1 {
		text += fmt.Sprintf(" (x%d over %s)", e.Count, ago(e.FirstTimestamp.Time, now))
	}
	return text
}

// ago is how long ago something was; a time that has not come yet is that of a clock that was wrong.
func ago(t, now time.Time) string {
	if t.IsZero() || t.After(now.Add(time.Second)) {
		return "<unknown>"
	}
	return duration.HumanDuration(max(now.Sub(t), 0))
}

// eventObject is like pod/web{container}, node/edge, or the path of an input.
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

// shownEvents is how many of a pod's latest events `describe` shows.
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
		rows = append(rows, []string{"  " + e.Type, e.Reason, seen(e, d.now), or(container, "-"), strings.ReplaceAll(e.Message, "\n", "; ")})
	}
	(&table{w: d.w}).printAll(rows)
}
