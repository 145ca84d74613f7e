package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	backoff "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"monopod/node/apiserver/client"
)

// Bounds of lists and watches.
const (
	// pageSize is how many objects are asked for at once; when they are too large, fewer.
	pageSize = 100
	// maxObjects and maxList bound a whole list: a server that has more for this machine is not right.
	maxObjects = 5000
	maxList    = 32 << 20
	// lateTimeout is how much longer a watch may last than was agreed.
	lateTimeout = time.Minute
	// turnsQPS and turnsBurst bound how often a watch is begun.
	turnsQPS   = 1
	turnsBurst = 5
)

// sink gets the objects of a feed.
type sink interface {
	// begin starts a list. Its objects come one by one by add, and take effect with done.
	begin()
	add(runtime.Object)
	done()
	// update gets one that was added or changed, or with gone has been deleted.
	update(object runtime.Object, gone bool)
	// lost is called when the content of the server is no longer known.
	lost()
}

// feed lists objects of one kind and follows their changes: client-go's Reflector, with lists that go into the sink page by
// page. On its own it would hold all objects of all pages.
type feed struct {
	client   *client.Client
	resource string
	// selector is a field selector.
	selector string
	// object and list make empty ones.
	object, list func() runtime.Object
	sink         sink

	limiter flowcontrol.RateLimiter
	w       *client.Waits
}

// run follows until ctx ends, or until who we are is the problem.
func (f *feed) run(ctx context.Context, a *Agent) error {
	f.w, f.limiter = a.waits(), flowcontrol.NewTokenBucketRateLimiter(turnsQPS, turnsBurst)
	ctx = klog.NewContext(ctx, f.client.Log)
	r := cache.NewReflectorWithOptions(f, f.object(), f, cache.ReflectorOptions{
		Logger: &f.client.Log, Name: f.resource, Backoff: &backoff.Backoff{Duration: f.w.First, Cap: f.w.Last, Factor: 2, Jitter: 1, Steps: 10},
	})
	for ctx.Err() == nil {
		ready := a.ready()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			f.sink.lost()
			if e := client.Fatal(err); e != nil {
				return e
			}
			if f.w.News(err) {
				a.log.Info("cannot list objects at the API server; retrying", "what", f.resource, "err", err)
			}
		}
		if a.rest(ctx, f.w.Next(), ready) {
			f.w.Sooner()
		}
	}
	return nil
}

// IsWatchListSemanticsUnSupported has the Reflector list page by page: what a stream of all objects sends has no bound.
func (f *feed) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.Lister.
func (f *feed) List(options metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), options)
}

// ListWithContext implements cache.ListerWithContext. The list that it returns has no objects: the sink has them.
func (f *feed) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	f.sink.begin()
	count, left, limit := 0, maxList, int64(pageSize)
	for from := ""; ; {
		page := f.list()
		size, err := f.page(ctx, from, limit, page)
		if errors.Is(err, client.ErrTooLarge) && limit > 1 {
			limit /= 2
			continue
		}
		if err != nil {
			return nil, err
		}
		if left -= size; left < 0 {
			return nil, fmt.Errorf("they have more than %d bytes", maxList)
		}
		if err := meta.EachListItem(page, func(o runtime.Object) error {
			if count++; count > maxObjects {
				return fmt.Errorf("there are more than %d", maxObjects)
			}
			f.sink.add(o)
			return nil
		}); err != nil {
			return nil, err
		}
		about, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if next := about.GetContinue(); next != "" && next != from {
			from = next
			continue
		}
		return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: about.GetResourceVersion()}}, nil
	}
}

// page reads one page and returns how large it was.
func (f *feed) page(ctx context.Context, from string, limit int64, into runtime.Object) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	options := metav1.ListOptions{FieldSelector: f.selector, Limit: limit, Continue: from}
	res := f.client.To(http.MethodGet, client.CoreAPI, "", f.resource).VersionedParams(&options, metav1.ParameterCodec).Do(ctx)
	raw, err := res.Raw()
	if err == nil {
		err = res.Into(into)
	}
	return len(raw), client.Complaint(&res, err)
}

// Watch implements cache.Watcher.
func (f *feed) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), options)
}

// WatchWithContext implements cache.WatcherWithContext.
func (f *feed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := f.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	options.FieldSelector, options.Watch = f.selector, true
	w, err := f.client.To(http.MethodGet, client.CoreAPI, "", f.resource).VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, err
	}
	if s := options.TimeoutSeconds; s != nil { // a server that does not end it may have forgotten it
		return &endingWatch{w, time.AfterFunc(time.Duration(*s)*time.Second+lateTimeout, w.Stop)}, nil
	}
	return w, nil
}

// endingWatch is a watch that ends by itself.
type endingWatch struct {
	watch.Interface
	timer *time.Timer
}

// Stop implements watch.Interface.
func (w *endingWatch) Stop() {
	w.timer.Stop()
	w.Interface.Stop()
}

// Replace implements cache.ReflectorStore: what was listed counts.
func (f *feed) Replace([]any, string) error {
	f.w.Reset()
	f.sink.done()
	return nil
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(o any) error { return f.change(o, false) }

// Update implements cache.ReflectorStore.
func (f *feed) Update(o any) error { return f.change(o, false) }

// Delete implements cache.ReflectorStore.
func (f *feed) Delete(o any) error { return f.change(o, true) }

// Resync implements cache.ReflectorStore.
func (f *feed) Resync() error { return nil }

func (f *feed) change(o any, gone bool) error {
	object, ok := o.(runtime.Object)
	if !ok {
		return fmt.Errorf("a %T is no object", o)
	}
	f.sink.update(object, gone)
	return nil
}

// newer reports whether a resource version is the same as another one or later. Versions that are not numbers cannot be compared.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX != nil || errY != nil || x >= y
}
