// BullMQ on PostgreSQL: as on Redis, with its own backend for it.
import { Queue, Worker, createPostgresBackend, setDefaultBackendFactory } from 'bullmq';
import { enqueuer, lease, record, url } from './side.mjs';

const NAME = 'peers';
setDefaultBackendFactory(createPostgresBackend);
const connection = { connectionString: url, max: 20, migrate: true };
const options = (due) => ({
  delay: Math.max(0, due - Date.now()),
  removeOnComplete: true,
  removeOnFail: true,
});

if (process.argv[2] === 'worker') {
  const held = lease ? { lockDuration: lease * 1000, stalledInterval: lease * 1000 } : {};
  new Worker(NAME, async (job) => record(job.data), { connection, concurrency: 100, ...held });
} else {
  const queue = new Queue(NAME, { connection });
  await queue.waitUntilReady();
  const one = (body, due) => queue.add('handle', body, options(due));
  const many = async (items) => {
    for (let start = 0; start < items.length; start += 1000) {
      const jobs = items.slice(start, start + 1000);
      await queue.addBulk(jobs.map(([data, due]) => ({ name: 'handle', data, opts: options(due) })));
    }
  };
  await enqueuer(one, many);
}
