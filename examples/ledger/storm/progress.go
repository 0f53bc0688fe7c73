package storm

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	barWidth    = 10
	barInterval = 200 * time.Millisecond
	logInterval = 5 * time.Second
)

// show shows how far the storm is until every key has its answer: as a bar on a
// terminal, else as a line now and then.
func (s *Storm) show(storm context.Context, answered <-chan struct{}) {
	w := s.config.Progress
	if w == nil {
		return
	}
	interval := logInterval
	var bar *progressbar.ProgressBar
	if isTerminal(w) {
		interval = barInterval
		bar = progressbar.NewOptions64(int64(s.config.For), progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(barWidth),
			progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░"}), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionUseANSICodes(true))
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for start := time.Now(); ; {
		select {
		case <-answered:
			if bar != nil {
				_ = bar.Finish()
			}
			return
		case <-ticker.C:
		}
		passed := min(time.Since(start), s.config.For)
		text := s.progress(passed)
		if storm.Err() != nil {
			text = "the last keys are pursued"
		}
		if bar == nil {
			printer.Fprintln(w, text)
			continue
		}
		bar.Describe(text)
		_ = bar.Set64(min(int64(passed), int64(s.config.For)-1)) // full is finished
	}
}

func (s *Storm) progress(passed time.Duration) string {
	t := s.Tally()
	return printer.Sprintf("%4v  %d requests  %d kills  %d restarts  %d backends",
		passed.Truncate(time.Second), t.Requests, t.Kills, t.Restarts, t.Backends)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
