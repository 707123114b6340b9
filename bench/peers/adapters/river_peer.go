// River: one Go process, 100 jobs at once, jobs looked for every 100 ms; many at once by COPY.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type Body struct{ Text string }

func (Body) Kind() string { return "handle" }

func handle(_ context.Context, job *river.Job[Body]) error {
	record(job.Args.Text)
	return nil
}

func main() {
	all := context.Background()
	pool := got(pgxpool.New(all, url+"?pool_max_conns=20"))
	driver := riverpgxv5.New(pool)
	one := got(pool.Acquire(all)) // its lock lets only one process at a time make the tables
	got(one.Exec(all, "SELECT pg_advisory_lock(1)"))
	got(got(rivermigrate.New(driver, nil)).Migrate(all, rivermigrate.DirectionUp, nil))
	must(one.Conn().Close(all))
	config := &river.Config{Logger: slog.New(slog.DiscardHandler)}
	if os.Args[1] == "worker" {
		openOut()
		config.Workers = river.NewWorkers()
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}
		config.FetchCooldown, config.FetchPollInterval = 100*time.Millisecond, 100*time.Millisecond
		if lease > 0 {
			config.JobTimeout = time.Duration(lease) * time.Second
			config.RescueStuckJobsAfter = config.JobTimeout
		}
		river.AddWorker(config.Workers, river.WorkFunc(handle))
		client := got(river.NewClient(driver, config))
		must(client.Start(all))
		<-client.Stopped()
	}
	client := got(river.NewClient(driver, config))
	enqueuer(func(it item) {
		got(client.Insert(all, Body{it.body}, &river.InsertOpts{ScheduledAt: it.due}))
	}, func(items []item) {
		many := []river.InsertManyParams{}
		for _, it := range items {
			at := &river.InsertOpts{ScheduledAt: it.due}
			many = append(many, river.InsertManyParams{Args: Body{it.body}, InsertOpts: at})
		}
		got(client.InsertManyFast(all, many))
	})
}
