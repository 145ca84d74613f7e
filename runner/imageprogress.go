package runner

import (
	"context"
	"time"
)

// ImageProgress is the progress of EnsureImage for one image.
type ImageProgress struct {
	Image string
	// Pulling reports that the image is being pulled now. Otherwise the image is present.
	Pulling bool
	// Present reports that the image was present before, without a pull.
	Present bool
	// Took is the duration of the pull. Size is the compressed size in bytes, 0 if unknown.
	Took time.Duration
	Size int64
}

type imageProgressKey struct{}

// WithImageProgress returns a context for EnsureImage that passes the progress of images to tell, and to the function of the parent context
// if it has one. tell must not block.
func WithImageProgress(ctx context.Context, tell func(ImageProgress)) context.Context {
	if others, ok := ctx.Value(imageProgressKey{}).(func(ImageProgress)); ok {
		also := tell
		tell = func(p ImageProgress) { others(p); also(p) }
	}
	return context.WithValue(ctx, imageProgressKey{}, tell)
}

// WantsImageProgress reports whether the context has a receiver for ReportImageProgress.
func WantsImageProgress(ctx context.Context) bool { return ctx.Value(imageProgressKey{}) != nil }

// ReportImageProgress passes progress to the receiver of the context. A Runtime calls it while it ensures an image.
func ReportImageProgress(ctx context.Context, p ImageProgress) {
	if tell, ok := ctx.Value(imageProgressKey{}).(func(ImageProgress)); ok {
		tell(p)
	}
}
